"""How long a fetch waits for rows that are not here."""

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import trio
import trio.testing

from fencepost.broker.clock import SystemClock
from fencepost.broker.config.broker_config import load_config
from fencepost.broker.fetch.sessions import FetchSessions
from fencepost.broker.handlers.api01_fetch import _read_later, handle
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.purgatory import Purgatory
from fencepost.coordinator.metadata.image import EMPTY_IMAGE
from fencepost.protocol.errors import ErrorCode
from tests.kit.late_log_store import LateLogStore
from tests.kit.wire import fetch_request
from tests.unit.log.kit import TP, batch, late_log, send, settle


class FetchOfTwoRows:
    """The first row arrives just before the deadline; then the second one is missing."""

    logs = ()
    missing = True

    def __init__(self) -> None:
        self.reads = 0
        self.first_arrived = False

    def ready(self) -> bool:
        return self.first_arrived and not self.reads

    def note_changes(self) -> None:
        """The partition stays."""

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


@pytest.mark.timeout(30)
async def test_a_partition_that_moves_away_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    """The broker loses its lease while rows are missing: Kafka's fetch completes when the leader changes
    (DelayedFetch.tryComplete), here it read again and again until the time was over, and served nobody else.
    """
    log = late_log(LateLogStore(MemoryStore()))
    send(log, batch())
    settle(log)
    log.segments.absent = range(1)
    node: Any = broker_of(log)

    async def lose_lease() -> None:
        await trio.sleep(1)
        node.partition = lambda tp: None
        node.absence = lambda tp: ErrorCode.NOT_LEADER_OR_FOLLOWER
        for parked in node.purgatory.parked:
            parked.wake()

    context = RequestContext(1, 11, 1, "client", Session("host", Endpoint("host", 9092)))
    request = fetch_request(TP.topic, max_wait_ms=60_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose_lease)
        waiting: Any = handle(node, request, context)
        answer = await waiting
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert trio.current_time() < 2


def broker_of(log: PartitionLog) -> Any:
    """What Fetch asks of a broker with one partition."""
    return SimpleNamespace(
        config=load_config(),
        fetch_sessions=FetchSessions(0, os.urandom),
        clock=SystemClock(),
        authorizer=None,
        place=SimpleNamespace(followed=None),
        metadata=SimpleNamespace(image=EMPTY_IMAGE),
        partition=lambda tp: log,
        response_bytes=SimpleNamespace(left=lambda least: 1 << 20),
        metrics=MagicMock(),
        purgatory=Purgatory(),
    )
