"""``python -m rlox``: the command line."""

from rlox.cli import main

if __name__ == "__main__":
    main()
