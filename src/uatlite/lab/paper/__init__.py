"""The paper, table by table: declared as data, computed, and printed beside the paper's own numbers."""
