"""How long a fetch waits for rows that are not here."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.handlers.api01_fetch import _read_later
from fencepost.broker.purgatory import Purgatory


class FetchOfTwoRows:
    """The first row arrives just before the deadline; then the second one is missing."""

    logs = ()
    missing = True

    def __init__(self) -> None:
        self.reads = 0
        self.first_arrived = False

    def ready(self) -> bool:
        return self.first_arrived and not self.reads

    def read(self) -> tuple[str, bool]:
        self.reads += 1
        return "response", False


@pytest.mark.timeout(30)
async def test_less_than_a_millisecond_is_waited_for_too(autojump_clock: trio.testing.MockClock) -> None:
    """Otherwise the fetch would read again and again until the time is over, and keep the event loop busy."""
    fetch: Any = FetchOfTwoRows()
    node: Any = SimpleNamespace(purgatory=Purgatory())

    async def arrive() -> None:
        await trio.sleep(0.2997)
        fetch.first_arrived = True
        for parked in node.purgatory.parked:
            parked.wake()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(arrive)
        assert await _read_later(node, fetch, 300) == "response"
    assert fetch.reads <= 3
    assert trio.current_time() >= 0.3
