"""Share groups (KIP-932) of a cluster: leaders, share coordinators and group coordinators are different brokers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from fencepost.broker.cluster.ownership import spread
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.api42_delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.api91_alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
)
from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    Ack,
    ShareMember,
    configure_group,
    knows_group,
    topic_id_of,
)
from tests.kit.share_workload import ShareWorkload
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of

pytestmark = pytest.mark.timeout(300)
GROUP = "workers"


class Sharing(ManyBrokers):
    """Brokers that make dead-letter topics."""

    def settings_of(self, number: int) -> dict[str, str]:
        return {"errors.deadletterqueue.auto.create.topics.enable": "true"}


@pytest.fixture(scope="module")
def cluster(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyBrokers]:
    with Sharing(Path(tmp_path_factory.mktemp("shares")), server) as processes:
        processes.start_all()
        processes.make("jobs")
        begins = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=[begins])
        admin = AdminClient({"bootstrap.servers": processes.bootstrap})
        for future in admin.incremental_alter_configs([changed]).values():
            future.result(SECONDS)
        yield processes


def coordinator(cluster: ManyBrokers, group: str = GROUP) -> int:
    """The broker of a group."""
    with Wire(cluster.brokers[next(iter(running(cluster)))].connect()) as wire:
        [found] = wire.call(10, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators
        return int(found.node_id)


def running(cluster: ManyBrokers) -> list[int]:
    return [number for number, broker in cluster.brokers.items() if broker.running]


def beat(wire: Wire, member: str, epoch: int = 0, group: str = GROUP) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=["jobs"]
    )
    return wire.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)


def test_share_groups_are_on_and_any_broker_switches_them(cluster: ManyBrokers) -> None:
    """`KafkaApis.isShareGroupProtocolEnabled` is what the finalized share.version says; a new cluster has it."""

    def finalized(wire: Wire) -> dict[str, int]:
        asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return {one.name: one.max_version_level for one in wire.call(18, 4, asked).finalized_features}

    number = coordinator(cluster)
    other = next(one for one in BROKERS if one != number)
    with Wire(cluster.brokers[number].connect()) as wire, Wire(cluster.brokers[other].connect()) as another:
        assert finalized(wire)["share.version"] == finalized(another)["share.version"] == 2
        assert beat(another, "one").error_code == ErrorCode.NOT_COORDINATOR
        for level, upgrade_type, answer in ((0, 2, ErrorCode.UNSUPPORTED_VERSION), (2, 1, ErrorCode.NONE)):
            update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=upgrade_type)
            assert another.call(57, 2, UpdateFeaturesRequest(feature_updates=[update])).error_code == ErrorCode.NONE
            until(lambda: finalized(wire).get("share.version", 0), level.__eq__)
            assert beat(wire, "one").error_code == answer


def test_a_partition_moves_with_what_its_group_has_done(cluster: ManyBrokers) -> None:
    """A waiting fetch names the next leader (KIP-951), where unsettled records come again and accepted ones do not.

    H3: a record that was held back still is.
    """
    number = coordinator(cluster)
    partition, leader = next(item for item in cluster.leaders("jobs").items() if item[1] != number)
    with Wire(cluster.brokers[number].connect()) as wire:
        joined = beat(wire, "one")
        assert (joined.error_code, len(joined.assignment.topic_partitions[0].partitions)) == (0, PARTITIONS)
        topic_id = topic_id_of(wire, "jobs")
        assert beat(wire, "one", -1).error_code == ErrorCode.NONE
    try:
        with Wire(cluster.brokers[leader].connect()) as wire:
            wire.produce("jobs", batch_of(b"0", b"1", b"2", b"3", b"4"), partition=partition)
            member = ShareMember(wire, GROUP, "one", topic_id, [partition])
            assert member.acquire() == [(offset, 1) for offset in range(5)]
            later = Ack(partition, 4, 4, RELEASE, delay_ms=3_600_000)
            assert member.acknowledge(Ack(partition, 0, 0, ACCEPT), Ack(partition, 1, 1, RELEASE), later) == [0]
            assert member.acquire(max_records=1) == [(1, 2)]
            assert member.acknowledge(Ack(partition, 1, 1, RELEASE)) == [0]
            assert member.acquire(max_records=1) == [(1, 3)]
            cluster.engine.drain(leader, True)
            assert moved(member.fetch(wait_ms=30_000)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            until(cluster.shares, lambda owners: leader not in owners)
            # the other brokers may still share out what was drained: it can move once more
            until(lambda: named(member) == cluster.leaders("jobs")[partition] != leader, bool)
        now = cluster.leaders("jobs")[partition]
        with Wire(cluster.brokers[now].connect()) as wire:
            member = ShareMember(wire, GROUP, "two", topic_id, [partition])
            assert member.acquire(wait_ms=30_000) == [(1, 3), (2, 1), (3, 1)]
            assert member.acknowledge(Ack(partition, 1, 3, ACCEPT)) == [0]
            assert member.acquire(wait_ms=50) == []
            wire.delete_records("jobs", 5, partition=partition)
    finally:
        cluster.engine.drain(leader, False)


def named(member: ShareMember) -> int:
    """The leader that a former one names."""
    return int(moved(member.fetch(wait_ms=10)).current_leader.leader_id)


def moved(answer: Any) -> Any:
    """What the answer of a former leader says of its partition."""
    [topic] = answer.responses
    return topic.partitions[0]


@contextmanager
def members(cluster: ManyBrokers, group: str) -> Iterator[tuple[Wire, dict[int, ShareMember]]]:
    """A new group that reads from the beginning: a connection to its coordinator, and for each leader a member that has
    a session for one of its partitions, with three records."""
    until(lambda: cluster.owners() == spread(frozenset(BROKERS)))  # no slot moves any more after the test before
    with Wire(cluster.brokers[coordinator(cluster, group)].connect()) as wire, ExitStack() as stack:
        configure_group(wire, group, share_auto_offset_reset="earliest")
        assert beat(wire, "one", group=group).error_code == ErrorCode.NONE
        topic_id = topic_id_of(wire, "jobs")
        found = {}
        for partition, leader in sorted(cluster.leaders("jobs").items(), reverse=True):
            if leader not in found:
                leading = stack.enter_context(Wire(cluster.brokers[leader].connect()))
                until(partial(knows_group, leading, group, share_auto_offset_reset="earliest"))
                leading.produce("jobs", batch_of(b"0", b"1", b"2"), partition=partition)
                found[leader] = ShareMember(leading, group, "one", topic_id, [partition])
        assert found.keys() == set(BROKERS)
        yield wire, found


def test_each_leader_writes_dead_letters(cluster: ManyBrokers) -> None:
    """ShareGroupDLQStateManager: Produce to the leader of the topic, which the controller creates (KIP-1191)."""
    with members(cluster, "rejecting") as (wire, leaders):
        configure_group(wire, "rejecting", errors_deadletterqueue_copy_record_enable="true")
        configure_group(wire, "rejecting", errors_deadletterqueue_topic_name="dlq.jobs")
        for member in leaders.values():
            until(partial(knows_group, member.wire, "rejecting", errors_deadletterqueue_topic_name="dlq.jobs"))
        expected = set()
        for member in leaders.values():
            [partition] = member.partitions
            until(partial(dead_letter_topic, member.wire, "rejecting"), "dlq.jobs".__eq__)
            (first, _), *_, (last, _) = member.acquire()
            assert member.acknowledge(Ack(partition, first, last, REJECT)) == [0]
            expected |= {(b"%d" % partition, b"%d" % offset) for offset in range(first, last + 1)}
        letters = letters_of(cluster, "dlq.jobs", len(expected))
        found = {(headers["__dlq.errors.partition"], headers["__dlq.errors.offset"]) for _, headers in letters}
        assert found == expected
        assert {value for value, _ in letters} >= {b"0", b"1", b"2"}
        for member in leaders.values():
            assert member.acquire(wait_ms=50) == []


def dead_letter_topic(wire: Wire, group: str) -> str | None:
    """What this broker knows of the group: it follows the controller."""
    asked = DescribeConfigsResource(resource_type=32, resource_name=group, configuration_keys=None)
    [answer] = wire.call(32, 4, DescribeConfigsRequest(resources=[asked])).results
    return next((one.value for one in answer.configs if one.name == "errors.deadletterqueue.topic.name"), None)


def letters_of(cluster: ManyBrokers, topic: str, count: int) -> list[tuple[bytes | None, dict[str, bytes]]]:
    """Value and headers of the first letters of a topic with one partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reads", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []

    def read() -> int:
        found.extend(one for one in consumer.consume(100, 0.2) if one.error() is None)
        return len(found)

    until(read, lambda number: number >= count)
    consumer.close()
    return [(one.value(), dict(one.headers())) for one in found]


def test_a_reset_or_deletion_reaches_leaders_with_sessions(cluster: ManyBrokers) -> None:
    """In Kafka a leader learns of it by the FENCED_STATE_EPOCH of its next write, and delivers by the old state before.

    The members' sessions outlive their membership here, as those of a client that does not notice.
    """
    with members(cluster, "again") as (wire, leaders):
        taken = {}
        for leader, member in leaders.items():
            [partition] = member.partitions
            taken[leader] = [offset for offset, _ in member.acquire()]
            assert member.acknowledge(Ack(partition, taken[leader][0], taken[leader][-1], ACCEPT)) == [0]
        assert beat(wire, "one", -1, "again").error_code == ErrorCode.NONE
        for _ in range(2):
            parts = [
                AlteredPartition(partition_index=member.partitions[0], start_offset=taken[leader][1])
                for leader, member in leaders.items()
            ]
            topics = [AlteredTopic(topic_name="jobs", partitions=parts)]
            answer = wire.call(91, 0, AlterShareGroupOffsetsRequest(group_id="again", topics=topics))
            assert [one.error_code for topic in answer.responses for one in topic.partitions] == [0] * len(leaders)
            for leader, member in leaders.items():
                [partition], again = member.partitions, taken[leader][1:]
                assert [offset for offset, _ in member.acquire()] == again
                assert member.acknowledge(Ack(partition, again[0], again[-1], ACCEPT)) == [0]
        [deleted] = wire.call(42, 2, DeleteGroupsRequest(groups_names=["again"])).results
        assert deleted.error_code == ErrorCode.NONE
        assert beat(wire, "two", group="again").error_code == ErrorCode.NONE
        for leader, member in leaders.items():
            assert [offset for offset, _ in member.acquire()] == taken[leader]


def test_a_broker_that_leads_and_coordinates_is_killed(cluster: ManyBrokers) -> None:
    """Nothing is lost, and what is accepted is not delivered again."""
    work = ShareWorkload(cluster.bootstrap, "jobs", PARTITIONS, GROUP)
    with work.running(2):
        work.go_on(200)
        number = coordinator(cluster)
        assert number in cluster.leaders("jobs").values()
        cluster.brokers[number].kill()
        until(cluster.shares, lambda owners: number not in owners)
        work.go_on(200)
        work.finish()
    assert work.again == []
    assert max(work.accepted.values()) == 1
