"""`python -m fencepost`: the same as the `fencepost` command."""

import atexit
import gc
import os
import sys


def main() -> None:
    """Run the command line."""
    if "_FENCEPOST_COMPLETE" in os.environ:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  a shell asks, and errors would appear in the user's line
    from fencepost.cli.main import cli  # here: importing the package must not import click

    atexit.register(gc.freeze)  # else Python looks for garbage in all modules once more: a fifth of a short command
    cli(prog_name="fencepost")


if __name__ == "__main__":
    main()
