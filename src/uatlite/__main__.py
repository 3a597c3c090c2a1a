"""`python -m uatlite`: the command line."""

from uatlite.cli import main

if __name__ == "__main__":
    main()
