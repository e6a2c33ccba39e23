"""`python -m dpjoin` is `dpjoin`, for where the command is not on the path."""

from dpjoin.cli.commands import main

if __name__ == "__main__":
    main()
