"""Deletes the oldest rows of logs in the database, and keeps what they add up to: the producers and leader epochs."""

from collections.abc import Sequence

from fencepost.broker.cluster.engine import Changed, Engine, Identity, Replacement
from fencepost.broker.cluster.folding import EPOCHS, PRODUCERS, LogState
from fencepost.broker.cluster.loading import rows_of

ATTEMPTS = 10
"""How often rows are read again that are merged at the same time."""


def raise_starts(engine: Engine, identity: Identity, starts: Sequence[tuple[int, int]]) -> None:
    """Raise the start offsets of logs, and delete the rows wholly below them. May be repeated after any error.

    Blocks. Raises StoreUnavailable, Fenced, Changed, CorruptLogFile.
    """
    for log, start in starts:
        for attempt in range(ATTEMPTS):
            try:
                _fold_below(engine, identity, log, start)
                break
            except Changed:
                if attempt == ATTEMPTS - 1:
                    raise
    engine.raise_start(identity, starts)


def _fold_below(engine: Engine, identity: Identity, log: int, start: int) -> None:
    """Delete the rows from the log's first run with heads up to `start`; snapshots stand for them afterwards."""
    state = LogState(f"log {log}", [one for kind in (PRODUCERS, EPOCHS) for one in engine.snapshots([log], kind)])
    runs = [row for row in rows_of(engine, log, state.end, start) if row.base >= state.end and row.end <= start]
    if not runs:
        return
    for row in runs:
        state.follow(row)
    bases = [row.base for row in runs]
    gone = Replacement(log, runs[0].base, runs[-1].end, bases, (), (), state.snapshots(log))
    engine.replace(identity, gone)
