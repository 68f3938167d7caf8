"""Deletes the oldest rows of logs in the database, and keeps what they add up to: the producers and leader epochs."""

from collections.abc import Sequence

from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import Changed, Engine, Replacement, StoreUnavailable
from fencepost.broker.cluster.reading.folding import EPOCHS, PRODUCERS, LogState
from fencepost.broker.cluster.reading.row_reading import rows_of

ATTEMPTS = 10
"""How often rows are read again that are merged at the same time."""


def raise_starts(engine: Engine, writer: Writer, starts: Sequence[tuple[int, int]]) -> None:
    """Raise the start offsets of logs, and delete the rows wholly below them. May be repeated after any error.

    It reads over `engine`, so that commits and renewals of the lease need not wait until many logs are read. Blocks.
    Raises Fenced, Stopped, Changed, CorruptLogFile.
    """
    for log, start in starts:
        for attempt in range(ATTEMPTS):
            try:
                _fold_below(engine, writer, log, start)
                break
            except Changed:
                if attempt == ATTEMPTS - 1:
                    raise
    writer.change(lambda identity: writer.engine.raise_start(identity, starts))


def _fold_below(engine: Engine, writer: Writer, log: int, start: int) -> None:
    """Delete the rows from the log's first run with heads up to `start`; snapshots stand for them afterwards."""
    while True:
        try:
            gone = _rows_below(engine, log, start)
            break
        except StoreUnavailable as error:
            writer.pause(error)
    if gone is not None:
        writer.change(lambda identity: writer.engine.replace(identity, gone))


def _rows_below(engine: Engine, log: int, start: int) -> Replacement | None:
    """The replacement of these rows by nothing. Raises Changed if they were merged after the snapshots were read."""
    state = LogState(f"log {log}", [one for kind in (PRODUCERS, EPOCHS) for one in engine.snapshots([log], kind)])
    runs = [row for row in rows_of(engine, log, state.end, start) if row.base >= state.end and row.end <= start]
    if not runs:
        return None
    if runs[0].base != state.end or any(row.heads is None for row in runs):
        raise Changed(f"the rows of log {log} from {state.end} on were merged meanwhile")
    for row in runs:
        state.follow(row)
    bases = [row.base for row in runs]
    return Replacement(log, runs[0].base, runs[-1].end, bases, (), (), state.snapshots(log))
