"""Text in, examples out: files, the hub, tasks, splits, label names, perturbations, linguistic buckets."""
