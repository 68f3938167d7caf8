"""A broker that lacks descriptors or memory for a while takes no partition and no coordinator away until a restart.

Nor does a read that fails take a coordinator away.

In Kafka any IOException of a log takes its whole directory offline (LogDirFailureChannel); a client sees an error that
it retries, and so it does here.
"""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker.node import Node
from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.ports import LogReadFailed
from fencepost.coordinator.share.values import InitialState, ShareKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_faults import Fault
from tests.kit.sim_broker import SimBroker
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_network import ClearWeather, SimNetwork
from tests.unit.broker.txn_node import T0, TxnNode

OPENS = ("open", "create")
READS = ("open", "pread", "size", "listing")
FRESH = TopicPartition("fresh", 0)
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


@asynccontextmanager
async def living(disk: SimDisk | None = None, fault: Fault | None = None) -> AsyncIterator[SimBroker]:
    """A broker over this disk, which is started until it lives. The fault counts from the first start."""
    async with trio.open_nursery() as nursery:
        random = Random(disk is None)  # ids differ between the lives
        broker = SimBroker(nursery, SimNetwork(nursery, ClearWeather()), random)
        broker.disk = disk or broker.disk
        if fault is not None:
            fault.first += broker.disk.io_count
            fault.stop += broker.disk.io_count
            broker.disk.faults.append(fault)
        while not await broker.start():
            assert is_of_the_disk(broker.failure), broker.failure
        yield broker
        await broker.stop()


def is_of_the_disk(failure: BaseException | None) -> bool:
    """Whether a start failed because the disk did: the next one may go well."""
    if isinstance(failure, BaseExceptionGroup):
        return all(map(is_of_the_disk, failure.exceptions))
    return isinstance(failure, OSError | LogReadFailed)


def node_of(broker: SimBroker) -> Node:
    assert broker.node is not None, broker.failure
    return broker.node


async def written(broker: SimBroker, tp: TopicPartition, value: bytes) -> None:
    """A transaction with one record in `tp`, as a client commits it that retries what may be retried."""
    with trio.fail_after(600):
        while True:
            client = TxnNode(node_of(broker))
            held = await client.init()
            if held.error_code == ErrorCode.NONE:
                identity = held.producer_id, held.producer_epoch
                codes = [*await client.add(3, identity, tp)]
                if codes == [ErrorCode.NONE]:
                    codes.append(await client.produce(11, identity, tp, value, 0))
                if codes == [ErrorCode.NONE] * 2:
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                    while code in RETRIABLE:
                        await trio.sleep(0.1)
                        code = (await client.end(3, identity, commit=True)).error_code
                    if code == ErrorCode.NONE:
                        return
                    codes.append(code)
            else:
                codes = [held.error_code]
            assert set(codes) <= {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, *RETRIABLE}, codes
            await trio.sleep(0.1)


async def play(disk: SimDisk, fault: Fault | None) -> None:
    """A start, a transaction in a partition that is there and one in a new partition; nothing is offline at the end."""
    async with living(disk, fault) as broker:
        await written(broker, T0, b"second")
        with trio.fail_after(600):
            while not node_of(broker).metadata.exists(FRESH):
                await node_of(broker).metadata.create_topics([NewTopic("fresh", 1)])
                await trio.sleep(0.1)
        await written(broker, FRESH, b"third")
        node = node_of(broker)
        assert node.partitions.offline() == []
        assert not [shard.partition for shard in node.transactions.runtime.shards() if shard.refusal]
        broker.disk.faults.clear()
        client = TxnNode(node)
        values = await client.committed(T0)
        assert (values[0], values[-1], await client.committed(FRESH)) == (b"first", b"second", [b"third"])


async def killed() -> SimDisk:
    """The disk of a broker that was killed after one transaction, and the first record of a share group."""
    async with living() as broker:
        node = node_of(broker)
        await node.metadata.create_topics([NewTopic("t", 1)])
        await written(broker, T0, b"first")
        key = ShareKey("g", node.metadata.image.topics_by_name["t"].topic_id, 0)
        assert not (await node.share_states.initialize({key: InitialState(1, 0)}))[key].error
        broker.kill()
        await broker.ended()
        return broker.disk


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM], ids=["descriptors", "memory"])
async def test_a_shortage_at_any_moment_is_over_when_it_is_over(code: int, autojump_clock: MockClock) -> None:
    disk = await killed()
    whole = disk.kill()
    began = whole.io_count
    await play(whole, None)
    for first in range(0, whole.io_count - began, 1 if code == errno.EMFILE else 7):
        await play(disk.kill(), Fault(first, first + 4, code, OPENS))


async def test_a_start_in_which_any_one_read_fails_takes_no_coordinator_away(autojump_clock: MockClock) -> None:
    """T13: and no log counts as damaged. In Kafka the broker ends, if it has no other directory (LogManager)."""
    disk = await killed()
    whole = disk.kill()
    began, reads = whole.io_count, []

    def note(kind: str, path: str) -> None:
        if kind in READS:
            reads.append(whole.io_count - began)

    whole.before_io = note
    async with living(whole):
        pass
    assert len(reads) > 20
    for read in reads:
        async with living(disk.kill(), Fault.once(read)) as broker:
            node = node_of(broker)
            await trio.sleep(11)
            shards = [*node.transactions.runtime.shards(), *node.share_states.runtime.shards()]
            assert [shard.refusal for shard in shards] == [ErrorCode.NONE] * 2
            broker.disk.faults.clear()
            assert not [entry.name for entry in broker.disk.listing("/data") if "damaged" in entry.name]


@pytest.mark.parametrize("moves", [False, True])
async def test_a_coordinators_log_is_read_again_until_that_succeeds(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, moves: bool
) -> None:
    """T13. CoordinatorRuntime: the next leader loads a shard that FAILED. Here no other broker may take it.

    If another does, it is left to that one.
    """
    fault = Fault(0, kinds=("open", "pread"), path_part="__transaction_state")
    async with living((await killed()).kill(), fault) as broker:
        runtime = node_of(broker).transactions.runtime
        [shard] = [one for one in runtime.shards() if one.refusal]
        assert shard.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await trio.sleep(25)
        assert shard.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert caplog.text.count(f"-{shard.partition} cannot be replayed") == 3
        if moves:
            runtime.unload(shard.partition)
        broker.disk.faults.clear()
        await trio.sleep(10)
        assert shard.refusal is (ErrorCode.NOT_COORDINATOR if moves else ErrorCode.NONE)
        assert caplog.text.count("the broker reads it again in 10 s") == 3
