"""What every member is told and what it says: one JSON object as its argument, one line for each thing it does.

    assigned 0 2      the partitions it holds, each time they change
    open 7            a transaction with 7 records and the positions behind them is on the broker, not yet committed
    committed 7       it is
    aborted CAUSE     the group or a successor said no; what it held comes again

SIGTERM asks it to leave the group in order. Everything else that ends it is a failure.
"""

import json
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

WAIT_SECONDS = 150.0
"""Far more than the transaction of a member that was killed stays open: a minute, which holds up who inherits."""
BATCH = 10
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Given:
    """The argument of a member."""

    bootstrap: str
    group: str
    source: str
    target: str
    transactional_id: str
    session_ms: int
    heartbeat_ms: int
    pause_s: float
    """How long a transaction stays open before its commit."""
    variant: str
    """Which of its ways the client takes, where it has several."""

    @classmethod
    def read(cls) -> Self:
        """What the command line says."""
        return cls(**json.loads(sys.argv[1]))


class Voice:
    """Says what happens; partitions only when they have changed."""

    def __init__(self) -> None:
        self._held: list[int] | None = None
        self.asked_to_stop = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.asked_to_stop = True

    def holds(self, partitions: Iterable[int]) -> None:
        """Tell the assignment, if it is another one."""
        held = sorted(partitions)
        if held != self._held:
            self._held = held
            self.say("assigned", *held)

    def say(self, *words: object) -> None:
        """One line."""
        print(*words, flush=True)
