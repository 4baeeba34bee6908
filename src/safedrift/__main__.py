"""`python -m safedrift` is the command `safedrift`."""

from safedrift.cli import main

if __name__ == "__main__":
    main()
