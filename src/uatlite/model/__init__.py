"""A pretrained model, left untouched: loading, the architecture table, the view, tokens, the plain pass, heads."""
