"""What the command `dpjoin` runs, and `python -m dpjoin` where it is not on the path."""

import sys


def main() -> None:
    """Load the command line and run it; who stops it while it is loaded sees no more than who stops it later."""
    try:
        from dpjoin.cli.commands import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
