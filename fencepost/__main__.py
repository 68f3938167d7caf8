"""`python -m fencepost`: the same as the `fencepost` command."""

import atexit
import errno
import gc
import os
import sys

from fencepost.extras import EXTRA_OF, needed_for
from fencepost.version import __version__

NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    if "_FENCEPOST_COMPLETE" in os.environ:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  a shell asks, and errors would appear in the user's line
    atexit.register(gc.freeze)  # else Python looks for garbage in all modules once more: a fifth of a short command
    try:
        with needed_for("the command"):
            from fencepost.cli.main import cli  # here: importing the package must not import click

            cli(prog_name="fencepost")
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        if sys.argv[1:] != ["--version"]:
            print(f"fencepost: {error}", file=sys.stderr)
            sys.exit(2)  # as for a refused setting: another start would not help
        from fencepost.protocol.compiled import record_code

        print(f"fencepost {__version__} (records: {record_code()})")
    except OSError as error:
        if error.errno not in NOT_WRITTEN or error.filename is not None:
            raise
        sys.exit(f"fencepost: cannot write the output: {error.strerror}")


if __name__ == "__main__":
    main()
