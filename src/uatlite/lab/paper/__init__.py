"""The paper, table by table: declared as data, run on what is at hand, printed beside the paper's own numbers."""
