"""The demo: fine-tune, evaluate, calibrate and report on real text, with nothing but packages from the index."""
