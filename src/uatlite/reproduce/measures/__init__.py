"""What a cell can ask for. A new measure is a function, a line in `registry.py` and a test."""
