"""Rows in and out: file formats, the streaming reader and its rejects, atomic writers, tasks as data, perturbations."""
