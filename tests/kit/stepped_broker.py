"""`fencepost serve` of a cluster that dies or waits at a named step of a commit or of a takeover, for tests.

    STEPS_CONTROL=FILE python -m tests.kit.stepped_broker serve --store ... --objects ...

The file says what happens next: `kill 3 after commit` is kill -9 when that step is reached for the third time;
`hold 1 after put` waits there until the file is gone. While FILE with the suffix `.cut` is there, the broker can ask no
other broker. PLANTED_FAULT names a function of `planted_faults.py`.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.__main__ import main
from fencepost.broker.cluster.commit.rounds import Rounds
from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.cluster.serving import broker, membership
from fencepost.broker.node import Node
from fencepost.broker.peers.links import PeerLinks
from fencepost.broker.peers.peer import PeerUnavailable

CONTROL, PLANTED = "STEPS_CONTROL", "PLANTED_FAULT"
COMMIT_STEPS = ("before put", "after put", "before commit", "after commit", "before deliver", "after deliver")
TAKEOVER_STEPS = ("before take-over", "after take-over", "while loading", "after loading", "before registering")
BETWEEN_PARTS = "between parts"
"""Only where a fault is planted that commits in parts."""
BEFORE_LATE_COMMITS = "before late commits"
"""Only where a fault is planted that acknowledges before it commits."""
_reached: Counter[str] = Counter()


def reach(step: str) -> None:
    """This thread is at that step now."""
    path = Path(os.environ[CONTROL])
    try:
        order = path.read_text()
    except FileNotFoundError:
        return
    action, count, wanted = order.split(" ", 2)
    if wanted != step:
        return
    _reached[order] += 1
    if _reached[order] == int(count):
        _reached.clear()
        if action == "kill":
            path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        path.with_suffix(".held").touch()
        while path.exists():
            time.sleep(0.02)


def _between(owner: Any, name: str, before: str | None, after: str | None, when: Callable[[Any], bool] = bool) -> None:
    """Put steps around a function; `after` only if `when` holds for its result."""
    inner = getattr(owner, name)

    def outer(*words: Any, **more: Any) -> Any:
        if before is not None:
            reach(before)
        result = inner(*words, **more)
        if after is not None and when(result):
            reach(after)
        return result

    setattr(owner, name, outer)


def _around_deliver() -> None:
    """`Rounds.deliver` is called more often than there are finished rounds."""
    inner = Rounds.deliver

    def deliver(self: Rounds) -> None:
        finished = self._round is not None and self._round.done
        if finished:
            reach("before deliver")
        inner(self)
        if finished:
            reach("after deliver")

    Rounds.deliver = deliver  # type: ignore[method-assign]


def _cut_links() -> None:
    """No request to another broker arrives, nor its answer, as long as the file with the suffix `.cut` is there."""
    inner, mark = PeerLinks.ask, Path(os.environ[CONTROL]).with_suffix(".cut")

    async def ask(self: PeerLinks, broker: int, request: Any, version: int) -> Any:
        if not mark.exists():
            answer = await inner(self, broker, request, version)
            if not mark.exists():
                return answer
        raise PeerUnavailable(f"broker {broker} is cut off by a test")

    PeerLinks.ask = ask  # type: ignore[method-assign]


def put_steps() -> None:
    """Into the classes of this process."""
    _between(RowObjects, "put", "before put", "after put")
    _between(PostgresEngine, "commit", "before commit", "after commit", lambda bases: True)
    _between(PostgresEngine, "take_over", "before take-over", "after take-over")
    for module in (membership, broker):
        _between(module, "load_logs", "while loading", "after loading", lambda logs: True)
    _between(Node, "register", "before registering", None)
    _around_deliver()
    _cut_links()


if __name__ == "__main__":
    if planted := os.environ.get(PLANTED):
        from tests.kit import planted_faults

        getattr(planted_faults, planted)()
    put_steps()
    main()
