"""`python -m fencepost`: the same as the `fencepost` command."""

import os
import sys


def main() -> None:
    """Run the command line."""
    if "_FENCEPOST_COMPLETE" in os.environ:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  a shell asks, and errors would appear in the user's line
    from fencepost.cli.main import cli  # here: importing the package must not import click

    cli(prog_name="fencepost")


if __name__ == "__main__":
    main()
