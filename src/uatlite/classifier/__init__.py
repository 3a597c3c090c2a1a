"""The product in Python: a checkpoint and a few hundred labelled rows become calibrated, explained decisions."""
