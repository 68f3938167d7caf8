"""What the commands of the long runs have in common: their options, and what becomes of a run and its directory."""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from tests.kit.history import Verdict


class LongRun(Protocol):
    """A run to be carried out and judged."""

    def go(self) -> Verdict:
        """All of it."""
        ...


R = TypeVar("R", bound=LongRun)


def parser_of(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for `python -m module` with the options that every long run has."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--durability", choices=["fsync", "os"], default="fsync")
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="kept; else one that goes unless it is needed")
    return parser


def carry_out(
    make: Callable[[Path], R], given_directory: Path | None, report: Callable[[R, Verdict, float], str]
) -> int:
    """Make a run over a directory, let it go and print what `report` says of it; 1 on a violation.

    A directory that nobody gave goes with the run, unless there is something to look for in it.
    """
    directory = given_directory or Path(tempfile.mkdtemp(prefix="fencepost-run-"))
    run, began = make(directory), time.monotonic()
    verdict = run.go()
    print(report(run, verdict, time.monotonic() - began))
    if verdict.violations:
        print(f"journals, logs and data: {directory}")
        return 1
    if given_directory is None:
        shutil.rmtree(directory)
    return 0
