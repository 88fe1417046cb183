"""`python -m scaling` is the `scaling` command."""

from scaling.cli import main

if __name__ == "__main__":
    main()
