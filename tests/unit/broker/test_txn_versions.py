"""`transaction.version` changed under way, and the records it makes (rows T10, T13, T14, T16, T21)."""

from itertools import pairwise, permutations

import pytest
import trio
import trio.testing

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.broker.txn_node import TX, Identity, TxnNode, running

MockClock = trio.testing.MockClock
E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEVELS = [0, 1, 2]
CHANGES = list(permutations(LEVELS, 2))


async def begin(on: TxnNode, level: int, held: Identity, value: bytes, sequence: int = 0) -> None:
    """A record on T0 and T1 in the way that a client of this level goes."""
    if level < 2:
        assert await on.add(3, held, T0, T1) == [E.NONE] * 2
    for name in (T0, T1):
        assert await on.produce(12 if level == 2 else 11, held, name, value, sequence) == E.NONE


async def finish(on: TxnNode, level: int, held: Identity, *, commit: bool) -> Identity:
    """EndTxn in the way of the level; the identity to go on with."""
    answer = await on.end(5 if level == 2 else 4, held, commit=commit)
    assert answer.error_code == E.NONE, ErrorCode(answer.error_code)
    return (answer.producer_id, answer.producer_epoch) if level == 2 else held


def record_versions(on: TxnNode) -> list[int]:
    return [int.from_bytes((value or b"")[:2], "big") for value in on.state_bytes()]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_under_way_outlives_the_change(
    before: int, after: int, commit: bool, autojump_clock: MockClock
) -> None:
    """Row T16: who began under one level ends under the other, in the old way or, having asked again, in the new."""
    for ends_as in (before, after):
        async with running() as on:
            await on.finalize(before) if before != 2 else None
            held = await on.identity()
            await begin(on, before, held, b"a")
            await on.finalize(after)
            held = await finish(on, ends_as, held, commit=commit)
            await begin(on, after, held, b"b", sequence=0 if ends_as == 2 else 1)
            await finish(on, after, held, commit=True)
            for name in (T0, T1):
                assert await on.committed(name) == [b"a", b"b"][not commit :]


@pytest.mark.parametrize(("before", "after"), CHANGES)
async def test_a_transaction_under_way_times_out_under_the_new_level(
    before: int, after: int, autojump_clock: MockClock
) -> None:
    """Rows T10, T11: the epoch is bumped whatever the level, so nothing late gets in behind the marker."""
    async with running() as on:
        await on.finalize(before) if before != 2 else None
        held = await on.identity(transaction_timeout_ms=3_000)
        await begin(on, before, held, b"a")
        await on.finalize(after)
        await trio.sleep(3.95)
        assert await on.markers(T0) == [("ABORT", held[1] + 1)]
        assert await on.produce(11, held, T0, b"late", 1) == E.INVALID_PRODUCER_EPOCH
        assert await on.produce(12, held, T0, b"late", 1) == E.INVALID_PRODUCER_EPOCH
        again = await on.init(5, held)
        if after == 2:
            assert (again.error_code, again.producer_epoch) == (E.NONE, held[1] + 1)
        else:
            assert again.error_code == E.PRODUCER_FENCED, "row T11: below TV2 it is fenced for good"


@pytest.mark.parametrize("timeout_ms", [1, 400, 1_000, 2_700])
async def test_no_transaction_outlives_its_timeout_by_a_second(timeout_ms: int, autojump_clock: MockClock) -> None:
    """Row T10, over the broker's default settings (Kafka looks every 10 s)."""
    async with running() as on:
        held = await on.identity(transaction_timeout_ms=timeout_ms)
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        await trio.sleep(timeout_ms / 1000 - 0.001)
        assert await on.markers(T0) == [], "not before its time"
        await trio.sleep(1.0)
        assert [kind for kind, _ in await on.markers(T0)] == ["ABORT"]


@pytest.mark.parametrize("level", LEVELS)
async def test_records_have_the_version_of_the_level_t14(level: int, autojump_clock: MockClock) -> None:
    """v1 from level 1 on; a TV2 client (EndTxn v5) forces v1, which v0 would lose (KIP-915)."""
    async with running() as on:
        await on.finalize(level) if level != 2 else None
        held = await on.identity()
        await begin(on, min(level, 1), held, b"a")
        await finish(on, 1, held, commit=True)
        assert set(record_versions(on)) == {0 if level == 0 else 1}
        await begin(on, 2, held, b"b", sequence=1)
        await finish(on, 2, held, commit=True)
        assert record_versions(on)[-1] == 1


async def test_a_downgrade_leaves_records_that_an_older_kafka_reads_t14(autojump_clock: MockClock) -> None:
    """Rows T14, T21: back at level 0, everything new is v0, and what is older is replaced with use."""
    async with running() as on:
        held = await on.identity()
        await begin(on, 2, held, b"a")
        held = await finish(on, 2, held, commit=True)
        assert record_versions(on)[-1] == 1
        await on.finalize(0)
        fresh = await on.identity()
        assert record_versions(on)[-1] == 0
        await begin(on, 0, fresh, b"b")
        await finish(on, 0, fresh, commit=True)
        await trio.sleep(1)  # Complete follows the answer
        assert all(version == 0 for version in record_versions(on)[-4:])
        for older, newer in pairwise([held, fresh]):
            assert newer > older


async def test_a_record_of_a_later_kafka_costs_its_partition_only_t13(autojump_clock: MockClock) -> None:
    """A value version that is not known yet is not guessed at: COORDINATOR_NOT_AVAILABLE for that partition's ids."""
    from fencepost.coordinator.partitioning import partition_for

    async with running() as on:
        await on.identity()
        log = on.node.transactions.runtime.shard_of(TX).log
        key = b"\x00\x00" + len(TX).to_bytes(2, "big") + TX.encode()
        log.append([(key, b"\x00\x09later")], 0)
        on.node.transactions.runtime.unload(partition_for(TX, 50))
        await on.node.transactions.runtime.load(partition_for(TX, 50))
        assert (await on.init()).error_code == E.COORDINATOR_NOT_AVAILABLE
        other = next(name for name in map(str, range(99)) if partition_for(name, 50) != partition_for(TX, 50))
        assert (await on.init(transactional_id=other)).error_code == E.NONE
