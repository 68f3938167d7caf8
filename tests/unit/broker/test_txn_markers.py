"""WriteTxnMarkers at every version, through a whole node (rows T8, T9, T20, T25)."""

import pytest
import trio.testing

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import HowEnded
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api61_describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.topics import TopicPartition
from tests.unit.broker.txn_node import GONE, T0, commit_offset, running, versions

MockClock = trio.testing.MockClock
E = ErrorCode


class TestMarkers:
    """Rows T8, T9, T25."""

    @pytest.mark.parametrize("version", versions(27))
    async def test_a_marker_ends_what_is_open(self, version: int, autojump_clock: MockClock) -> None:
        """Row T8: it goes past the coordinator, as an operator's abort does."""
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"x", 0) == E.NONE
            assert await on.mark(version, held, T0, commit=False) == E.NONE
            assert await on.markers(T0) == [("ABORT", held[1])]
            assert await on.committed(T0) == []
            assert await on.mark(version, held, GONE) == E.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("version", versions(27))
    async def test_an_older_coordinator_is_fenced_t9(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"x", 0) == E.NONE
            assert await on.mark(version, held, T0, coordinator=3) == E.NONE
            assert await on.mark(version, held, T0, coordinator=2) == E.TRANSACTION_COORDINATOR_FENCED
            assert await on.mark(version, (held[0], held[1] + 1), T0, coordinator=3) == E.NONE

    @pytest.mark.parametrize("version", versions(27))
    async def test_an_older_epoch_is_refused_t9(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            first = await on.identity()
            second = await on.identity()
            assert await on.produce(12, second, T0, b"x", 0) == E.NONE
            assert await on.mark(version, first, T0) == E.INVALID_PRODUCER_EPOCH

    async def test_a_tv2_marker_must_be_above_the_records_and_may_come_twice_t25(
        self, autojump_clock: MockClock
    ) -> None:
        """KAFKA-19999: the retry of a marker that is there is taken; one that would end a newer transaction is not."""
        async with running() as on:
            held = await on.identity()
            above = (held[0], held[1] + 1)
            assert await on.produce(12, held, T0, b"x", 0) == E.NONE
            assert await on.mark(2, held, T0, txn_version=2) == E.INVALID_PRODUCER_EPOCH
            assert await on.mark(2, above, T0, txn_version=2) == E.NONE
            assert await on.mark(2, above, T0, txn_version=2) == E.NONE, "the retry"
            assert await on.committed(T0) == [b"x"]

    async def test_a_retried_marker_ends_no_later_transaction_t25(self, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"x", 0) == E.NONE
            ended = await on.end(5, held, commit=True)
            following = (ended.producer_id, ended.producer_epoch)
            assert await on.produce(12, following, T0, b"y", 0) == E.NONE
            assert await on.mark(2, following, T0, txn_version=2) == E.INVALID_PRODUCER_EPOCH
            assert await on.committed(T0) == [b"x"]

    @pytest.mark.parametrize("durability", ["fsync", "os"])
    @pytest.mark.parametrize("commit", [True, False])
    async def test_the_end_of_a_transaction_is_visible_when_it_is_answered_t7_t8(
        self, commit: bool, durability: str, autojump_clock: MockClock
    ) -> None:
        """In the partitions as in the group; with the page cache for a disk nothing has to be waited for."""
        async with running(f"durability={durability}") as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"x", 0) == E.NONE
            assert await commit_offset(on, held, 7) == E.NONE
            assert (await on.end(5, held, commit=commit)).error_code == E.NONE
            assert await on.markers(T0) == [("COMMIT" if commit else "ABORT", held[1] + 1)]
            assert await on.committed(T0) == ([b"x"] if commit else [])
            fetched = await on.node.groups.positions.fetch("readers", None, require_stable=True)
            assert [entry.offset for entry in fetched] == ([7] if commit else [])
            assert on.node.transactions.completing == 0
            assert on.node.transactions.ids.counts["CompleteCommit" if commit else "CompleteAbort"] == 1
            assert on.node.metrics.markers_written == 2

    @pytest.mark.parametrize("commit", [True, False])
    async def test_a_log_tells_how_a_transaction_ended_t13(
        self, commit: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By its marker of that epoch. A partition that is gone needs none; one that cannot be read may have it."""
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"x", 0) == E.NONE
            markers, (producer_id, epoch), other = on.node.markers, held, TopicPartition("t", 1)
            assert markers.how_ended(producer_id, epoch + 1, [T0, other, GONE]) is HowEnded.NOT_ENDED
            assert (await on.end(5, held, commit=commit)).error_code == E.NONE
            ended = HowEnded.COMMITTED if commit else HowEnded.ABORTED
            assert markers.how_ended(producer_id, epoch + 1, [T0, other, GONE]) is ended
            assert markers.how_ended(producer_id, epoch + 2, [T0, other]) is HowEnded.NOT_ENDED
            assert markers.how_ended(producer_id + 1, epoch + 1, [T0]) is HowEnded.NOT_ENDED
            partition = on.node.partition
            monkeypatch.setattr(on.node, "partition", lambda tp: None if tp == other else partition(tp))
            monkeypatch.setattr(on.node, "absence", lambda tp: E.KAFKA_STORAGE_ERROR)
            assert markers.how_ended(producer_id, epoch + 1, [T0, other]) is ended
            assert markers.how_ended(producer_id, epoch + 2, [T0, other]) is HowEnded.UNKNOWN

    @pytest.mark.parametrize("commit", [True, False])
    async def test_markers_on_offsets_go_to_the_group_coordinator_t8(
        self, commit: bool, autojump_clock: MockClock
    ) -> None:
        async with running() as on:
            held = await on.identity()
            assert await commit_offset(on, held, 7) == E.NONE
            group = TopicPartition("__consumer_offsets", partition_for("readers", 50))
            assert await on.mark(2, held, group, commit=commit) == E.NONE
            fetched = await on.node.groups.positions.fetch("readers", None, require_stable=True)
            assert [entry.offset for entry in fetched] == ([7] if commit else [])

    @pytest.mark.parametrize("durability", ["fsync", "os"])
    async def test_a_group_log_that_is_not_understood_takes_no_marker_t8(
        self, durability: str, autojump_clock: MockClock
    ) -> None:
        """The group coordinator's errors are NOT_LEADER_OR_FOLLOWER here, which is tried again until it can load."""
        async with running(f"durability={durability}") as on:
            held = await on.identity()
            assert await commit_offset(on, held, 7) == E.NONE
            number = partition_for("readers", 50)
            log = on.node.groups._shards.of("readers").log
            log.append([(b"\x00\x01torn", b"")], 0)
            on.node.groups.runtime.unload(number)
            await on.node.groups.runtime.load(number)
            assert on.node.groups.refusal("readers") is E.COORDINATOR_NOT_AVAILABLE
            name = TopicPartition("__consumer_offsets", number)
            assert await on.mark(2, held, name) == E.NOT_LEADER_OR_FOLLOWER
            assert (await on.end(4, held, commit=True)).error_code == E.NONE, "decided, and owed"
            assert on.node.transactions.completing == 1

    async def test_a_hanging_transaction_is_ended_by_hand_t20(self, autojump_clock: MockClock) -> None:
        """What `kafka-transactions.sh abort` sends: the epoch that DescribeProducers shows, and its coordinator epoch.

        Without verification an old client's late batch opens a transaction that its coordinator does not know.
        """
        async with running("transaction.partition.verification.enable=false") as on:
            held = await on.identity()
            assert await on.produce(11, held, T0, b"hanging", 0) == E.NONE
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            [told] = (await on.ask(61, 0, request)).topics[0].partitions[0].active_producers
            assert (told.producer_id, told.producer_epoch, told.current_txn_start_offset) == (*held, 0)
            assert await on.committed(T0) == []
            by_hand = (told.producer_id, told.producer_epoch)
            assert await on.mark(1, by_hand, T0, commit=False, coordinator=max(told.coordinator_epoch, 0)) == E.NONE
            assert await on.markers(T0) == [("ABORT", held[1])]
            assert await on.add(3, held, T0) == [E.NONE]
            assert await on.produce(11, held, T0, b"after", 1) == E.NONE
            assert (await on.end(4, held, commit=True)).error_code == E.NONE
            assert await on.committed(T0) == [b"after"]
