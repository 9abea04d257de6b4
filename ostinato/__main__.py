"""`python -m ostinato`: the command line."""

from ostinato.cli import main

if __name__ == "__main__":
    main()
