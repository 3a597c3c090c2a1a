"""Fine-tuning: a backbone and labelled rows become a classifier, by a recipe whose defaults are the paper's."""
