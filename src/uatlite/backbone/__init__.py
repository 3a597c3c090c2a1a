"""Pretrained models, untouched: the architecture table, the view that we hook instead of them, the seams."""
