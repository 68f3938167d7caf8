"""A read may be cancelled at any of its steps: nothing is lost and nothing comes twice.

The reader's task is cancelled at steps that Hypothesis chooses, in all three ways to read, mixed; between the reads the
broker refuses sessions, hangs up and moves the epoch. What came out has to be the committed records, once each.
"""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import fencepost
from fencepost import TopicPartition
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from tests.kit.fetch_broker import FetchBroker, ScriptedCluster
from tests.kit.scripted_broker import HANG_UP

pytestmark = pytest.mark.long

PARTITIONS = 2
FILLER = b"".join(b"%08d" % number for number in range(20_000))


class CancelAtStep(trio.abc.Instrument):
    """Cancels `scope` when its task begins its n-th step, counted from when it was armed."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self._task = task
        self._left = -1
        self._scope: trio.CancelScope | None = None

    def arm(self, steps: int) -> trio.CancelScope:
        self._left, self._scope = steps, trio.CancelScope()
        return self._scope

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is self._task and self._left >= 0:
            self._left -= 1
            if self._left < 0 and self._scope is not None:
                self._scope.cancel()


def filled(cluster: ScriptedCluster) -> dict[int, list[int]]:
    """Plain, aborted, committed and large compressed batches; the offsets that a program should see."""
    seen: dict[int, list[int]] = {}
    for number in range(PARTITIONS):
        seen[number] = offsets = []
        for turn in range(6):
            first = cluster.logs[number].end
            if turn % 3 == 0:
                cluster.write(number, [b"v"] * 4)
                offsets += range(first, first + 4)
            elif turn % 3 == 1:
                cluster.write_in_transaction(number, [b"v"] * 3, 7, commit=turn == 4)
                offsets += range(first, first + 3) if turn == 4 else ()
            else:
                cluster.write(number, [FILLER, b"x"], compression=Compression.LZ4)
                offsets += range(first, first + 2)
    return seen


Read = Callable[[Any, int], Any]


async def by_batch(consumer: Any, limit: int) -> list[tuple[int, int]]:
    async for batch in consumer.batches(limit):
        return [(record.partition, record.offset) for record in batch]
    raise AssertionError


async def one_by_one(consumer: Any, limit: int) -> list[tuple[int, int]]:
    async for record in consumer:
        return [(record.partition, record.offset)]
    raise AssertionError


async def in_columns(consumer: Any, limit: int) -> list[tuple[int, int]]:
    async for batch in consumer.arrow(columns=["partition", "offset"]):
        return list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    raise AssertionError


async def play(plan: list[tuple[Read, int, int, int]]) -> None:
    cluster = ScriptedCluster(partitions=PARTITIONS)
    expected = filled(cluster)
    got: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    cancel = CancelAtStep(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(cancel)
    async with trio.open_nursery() as nursery:
        broker = FetchBroker(cluster)
        await nursery.start(broker.serve)
        options = {"max_partition_fetch_bytes": 60_000, "check_crcs": False}
        async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", **options) as consumer:
            turn = 0
            with trio.fail_after(100):
                while sum(map(len, got.values())) < sum(map(len, expected.values())):
                    read, steps, limit, mischief = plan[turn] if turn < len(plan) else (by_batch, 1_000, 3, 0)
                    turn += 1
                    if mischief == 1:
                        broker.sessions.clear()
                    elif mischief == 2:
                        broker.scripts["Fetch"].append(HANG_UP)
                    elif mischief == 3:
                        cluster.epoch[0] += 1
                        broker.troubles[0].append(ErrorCode.FENCED_LEADER_EPOCH)
                    with cancel.arm(steps):
                        for partition, offset in await read(consumer, limit):
                            got[partition].append(offset)
            assert got == expected
            positions = {n: consumer._fetcher.states[TopicPartition("t", n)].position for n in got}
            assert positions == {n: cluster.logs[n].end for n in got}, "behind the last marker"
        nursery.cancel_scope.cancel()


step = st.tuples(
    st.sampled_from([by_batch, by_batch, one_by_one, in_columns]),
    st.integers(0, 6),
    st.integers(1, 5),
    st.sampled_from([0, 0, 0, 1, 2, 3]),
)


@settings(max_examples=60)
@given(plan=st.lists(step, max_size=40))
def test_nothing_is_lost_and_nothing_comes_twice(plan: list[tuple[Read, int, int, int]]) -> None:
    trio.run(play, plan)


@pytest.mark.parametrize("read", [by_batch, one_by_one, in_columns])
def test_cancelled_at_each_single_step(read: Read) -> None:
    """The same, without chance: the first read is cancelled at step 0, 1, 2, ..."""
    for steps in range(8):
        trio.run(play, [(read, steps, 2, 0)] * 12)
