"""`python -m tests.models`: check the models of commits and of markers with TLC, in scopes of any size."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.models.scopes import CORES, LARGE, SMALL, constants
from tests.models.tlc import check


def main() -> int:
    """The command; 1 if a property is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__)
    parser.add_argument(
        "scopes", nargs="*", metavar="SCOPE", help=f"{', '.join([*SMALL, *LARGE, *CORES])} (default: all)"
    )
    parser.add_argument("--without", metavar="RULE", action="append", default=[], help="leave a rule out")
    parser.add_argument("--heap", default="3g", help="memory for TLC (3g)")
    arguments = parser.parse_args()
    violated = False
    for scope in arguments.scopes or [*SMALL, *LARGE, *CORES]:
        with tempfile.TemporaryDirectory() as directory:
            model = "cores" if scope in CORES else "commit"
            verdict = check(
                constants(scope, tuple(arguments.without)), Path(directory), heap=arguments.heap, model=model
            )
        violated |= verdict.violated is not None
        result = "holds" if verdict.violated is None else f"{verdict.violated} is violated"
        print(f"{scope}: {result}; {verdict.states} states, depth {verdict.depth}, {verdict.seconds:.0f} s", flush=True)
        if verdict.violated is not None:
            print(verdict.output)
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
