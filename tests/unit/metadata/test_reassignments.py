"""Moves of partitions with one replica to another broker (KIP-455), asked of the pure decision."""

from collections.abc import Sequence

import pytest

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.config.topic_rules import TopicRules
from fencepost.coordinator.metadata.commands import NewTopic, Outcome
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.delta import AssignmentChanged, Change
from fencepost.coordinator.metadata.image import PartitionImage
from fencepost.coordinator.metadata.placement import new_leaders, placement_records
from fencepost.coordinator.metadata.ports import ClusterFacts
from fencepost.coordinator.metadata.reassignments import HandedOver, Reassignment, reassign
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.metadata_record_types import FeatureLevelRecord
from fencepost.protocol.metadata_records import decode_metadata_records, encode_metadata_records
from fencepost.protocol.topics import TopicPartition
from tests.unit.metadata.kit import Ids

BROKERS = (1, 2, 3)
TP = TopicPartition("orders", 1)


class Cluster:
    """The metadata, which change only by records as the log has them."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.changes: list[Change] = []
        facts = ClusterFacts("c", 1, node_ids=BROKERS)
        topic = NewTopic("orders", assignment=((0, (1,)), (1, (1,)), (2, (3,))))
        created = TopicController(facts, TopicRules(load_config()), Ids(7)).create_topics(self.loader.image, [topic])
        self.write([FeatureLevelRecord("metadata.version", 25), *created.log])
        self.topic_id = self.loader.image.topics_by_name["orders"].topic_id

    def write(self, entries: Sequence[MetadataEntry]) -> None:
        read = list(decode_metadata_records(encode_metadata_records(entries)))
        self.changes += self.loader.load_batch(self.loader.image.offset, read)

    def ask(self, *wanted: Reassignment | HandedOver) -> list[Outcome]:
        decision = reassign(self.loader.image, wanted, BROKERS)
        self.write(decision.log)
        return decision.reply

    def code(self, replicas: tuple[int, ...] | None, tp: TopicPartition = TP) -> ErrorCode:
        [outcome] = self.ask(Reassignment(tp, replicas))
        return outcome.code

    def handed_over(self, epoch: int, topic_id: bytes | None = None) -> ErrorCode:
        [outcome] = self.ask(HandedOver(TP, self.topic_id if topic_id is None else topic_id, epoch))
        return outcome.code

    @property
    def now(self) -> PartitionImage:
        return self.loader.image.topics_by_name["orders"].assignment[1]

    def brief(self) -> tuple[object, ...]:
        now = self.now
        assert len(now.directories) == len(now.replicas)
        return now.replicas, now.adding_replicas, now.removing_replicas, now.isr, now.leader


AT_HOME = ((1,), (), (), (1,), 1)
ON_ITS_WAY = ((2, 1), (2,), (1,), (1,), 1)


def test_a_move_begins_with_an_added_replica_and_the_old_leader() -> None:
    """PartitionReassignmentReplicas: the target, then the replicas to remove; leader and ISR stay (KIP-455)."""
    cluster = Cluster()
    assert cluster.code((2,)) is ErrorCode.NONE
    assert cluster.brief() == ON_ITS_WAY
    assert (cluster.now.leader_epoch, cluster.now.partition_epoch) == (0, 1)


def test_a_partition_that_is_handed_over_has_the_new_leader_alone_and_a_higher_epoch() -> None:
    """PartitionReassignmentReplicas.maybeCompleteReassignment, PartitionChangeBuilder: the leader epoch rises."""
    cluster = Cluster()
    cluster.code((2,))
    assert cluster.handed_over(1) is ErrorCode.NONE
    assert cluster.brief() == ((2,), (), (), (2,), 2)
    assert cluster.now.leader_epoch == 1
    assert [type(change) for change in cluster.changes[-2:]] == [AssignmentChanged, AssignmentChanged]
    last = cluster.changes[-1]
    assert isinstance(last, AssignmentChanged)
    assert (last.before.assignment[1].leader, last.topic.assignment[1].leader) == (1, 2)


def test_a_cancelled_move_leaves_the_replicas_as_they_were() -> None:
    """PartitionReassignmentRevert."""
    cluster = Cluster()
    cluster.code((2,))
    assert cluster.code(None) is ErrorCode.NONE
    assert cluster.brief() == AT_HOME
    assert cluster.now.leader_epoch == 0


def test_a_cancellation_with_nothing_under_way_is_an_error() -> None:
    """ReplicationControlManager.cancelPartitionReassignment."""
    cluster = Cluster()
    assert cluster.code(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.code((2,))
    cluster.handed_over(1)
    assert cluster.code(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_what_was_handed_over_before_a_cancellation_changes_nothing_later() -> None:
    """ReplicationControlManager.validateAlterPartitionData: INVALID_UPDATE_VERSION for another partition epoch."""
    cluster = Cluster()
    cluster.code((2,))
    cluster.code(None)
    assert cluster.handed_over(1) is ErrorCode.INVALID_UPDATE_VERSION
    cluster.code((2,))
    assert cluster.handed_over(1) is ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.brief() == ON_ITS_WAY
    assert cluster.handed_over(3, bytes(16)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.handed_over(3) is ErrorCode.NONE
    assert cluster.handed_over(3) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_move_may_get_another_target_or_none() -> None:
    """KIP-455: a new reassignment replaces the one under way."""
    cluster = Cluster()
    cluster.code((2,))
    assert cluster.code((3,)) is ErrorCode.NONE
    assert cluster.brief() == ((3, 1), (3,), (1,), (1,), 1)
    assert cluster.code((1,)) is ErrorCode.NONE
    assert cluster.brief() == AT_HOME


def test_where_it_is_or_goes_already_nothing_changes() -> None:
    cluster = Cluster()
    assert cluster.code((1,)) is ErrorCode.NONE
    assert cluster.now.partition_epoch == 0
    cluster.code((2,))
    assert cluster.code((2,)) is ErrorCode.NONE
    assert cluster.now.partition_epoch == 1


@pytest.mark.parametrize("replicas", [(), (7,), (2, 3), (2, 2), (-1,)])
def test_replicas_that_cannot_be_are_refused(replicas: tuple[int, ...]) -> None:
    """ReplicationControlManager.validateManualPartitionAssignment."""
    cluster = Cluster()
    assert cluster.code(replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.brief() == AT_HOME


@pytest.mark.parametrize("tp", [TopicPartition("orders", 3), TopicPartition("orders", -1), TopicPartition("none", 0)])
@pytest.mark.parametrize("replicas", [(2,), None])
def test_a_partition_that_does_not_exist_is_unknown(tp: TopicPartition, replicas: tuple[int, ...] | None) -> None:
    """ReplicationControlManager.alterPartitionReassignment. The metadata log is no topic of the metadata."""
    assert Cluster().code(replicas, tp) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert Cluster().code(replicas, TopicPartition("__cluster_metadata", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_start_without_the_target_gives_the_move_up() -> None:
    """A start with fewer cores: the leader stays, and nothing is under way."""
    cluster = Cluster()
    cluster.code((3,))
    image = cluster.loader.image
    cluster.write(placement_records(image, (1, 2), new_leaders(image, (1, 2))))
    assert cluster.brief() == AT_HOME


def test_a_start_without_the_leader_ends_the_move() -> None:
    cluster = Cluster()
    cluster.ask(Reassignment(TopicPartition("orders", 2), (1,)))
    image = cluster.loader.image
    cluster.write(placement_records(image, (1, 2), new_leaders(image, (1, 2))))
    moved = cluster.loader.image.topics_by_name["orders"].assignment[2]
    assert moved.leader in (1, 2)
    assert (moved.replicas, moved.adding_replicas, moved.removing_replicas) == ((moved.leader,), (), ())
