"""What both loaders share: their options, the plan of transactions, and what they tell the stage."""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from examples.flights.dataset import rows_of_slice
from examples.flights.events import tell

ABORT_EVERY = 10


class LoadOptions(NamedTuple):
    """The command line of a loader."""

    bootstrap: str
    slice_number: int
    slices: int
    transaction_rows: int
    rows_max: int | None
    stand_still_in: int | None
    """The number of the transaction in whose middle the loader waits for ever; the demo kills it there."""

    @property
    def transactional_id(self) -> str:
        """One name for each slice: whoever opens it next fences whoever had it before."""
        return f"flights-loader-{self.slice_number}"


class Step(NamedTuple):
    """One transaction: which rows, and what becomes of it."""

    start: int
    end: int
    written_in_vain_first: bool
    stand_still: bool


def parse_options() -> LoadOptions:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Load one slice of the flights, in transactions.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--slice", type=int, default=0)
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--transaction-rows", type=int, default=1000)
    parser.add_argument("--rows-max", type=int)
    parser.add_argument("--stand-still-in", type=int)
    given = parser.parse_args()
    return LoadOptions(
        given.bootstrap, given.slice, given.slices, given.transaction_rows, given.rows_max, given.stand_still_in
    )


def read_slice(options: LoadOptions) -> list[tuple[bytes, bytes]]:
    """The rows of this loader."""
    rows = rows_of_slice(options.slice_number, options.slices)
    return rows if options.rows_max is None else rows[: options.rows_max]


def plan(options: LoadOptions, rows: int, position: int) -> Iterator[Step]:
    """The transactions that lead from `position` to the end; a transaction has the same number after a restart."""
    size = options.transaction_rows
    for start in range(position, rows, size):
        number = start // size
        in_vain = number % ABORT_EVERY == ABORT_EVERY - 1
        yield Step(start, min(start + size, rows), in_vain, number == options.stand_still_in)


def wait_to_be_killed(position: int) -> None:
    """Say that the middle of a transaction is reached, and do nothing more, ever."""
    tell("standing-still", position=position)
    while True:
        time.sleep(60)


def tell_start(rows: int, position: int) -> None:
    """The producer is initialised, so whoever had its name before is fenced; here the work goes on."""
    tell("loader-started", rows=rows, position=position)


def tell_committed(position: int) -> None:
    """All rows below `position` are committed."""
    tell("committed", position=position)


def tell_aborted(rows: int, why: str) -> None:
    """`rows` records were written and then aborted."""
    tell("aborted", rows=rows, why=why)


def note(text: str) -> None:
    """Something for the log of this process."""
    print(text, file=sys.stderr, flush=True)
