"""`python -m uatlite.demo`: the same as `uatlite demo`."""

import sys

from uatlite.cli import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]])
