"""Share groups of a real broker where clients and operators do what one would not expect (KIP-932)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api42_delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, Ack, ShareMember, initialize, topic_id_of
from tests.kit.small_disk import SmallDisk, small_disk, why_not
from tests.kit.wire import Wire, batch_of

_REASON = why_not()
QUICK = {"group.share.record.lock.duration.ms": "1000", "group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture
def wire(file_broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t", partitions=4)
        yield wire


def beat(wire: Wire, member: str, epoch: int) -> int:
    """A heartbeat in group g; the next epoch."""
    topics = None if epoch else ["t"]
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )
    answer = wire.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.member_epoch)


def test_one_batch_of_a_response_may_exceed_max_bytes(wire: Wire) -> None:
    """ReplicaManager.readFromLog (minOneMessage): the first one; else 1000 partitions would fill the memory."""
    topic_id = topic_id_of(wire, "t")
    initialize(wire, "g", topic_id, range(4))
    for partition in range(4):
        wire.produce("t", batch_of(bytes(2000)), partition=partition)
    member = ShareMember(wire, "g", "m", topic_id, range(4))
    counts = []
    for _ in range(4):
        request = member.fetch_request()
        request.max_bytes = 1
        answer = wire.call(ApiKey.SHARE_FETCH, 2, request)
        member.epoch += 1
        counts.append(sum(len(part.acquired_records) for topic in answer.responses for part in topic.partitions))
    assert counts == [1, 1, 1, 1], "and each partition gets its turn"


def test_a_group_that_is_deleted_and_made_again_begins_anew(wire: Wire, file_broker: BrokerProcess) -> None:
    """DeleteGroups removes the state; a session that is still there must not bring the old positions back."""
    with Wire(file_broker.connect()) as connection:
        member = ShareMember(connection, "g", "m", topic_id_of(wire, "t"))
        epoch = beat(wire, "m", 0)
        member.fetch(wait_ms=200)
        for number in range(6):
            wire.produce("t", batch_of(b"%d" % number))
        assert member.acquire(max_records=3) == [(0, 1), (1, 1), (2, 1)]
        beat(wire, "m", -1)
        assert epoch > 0
        [deleted] = wire.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"])).results
        assert deleted.error_code == ErrorCode.NONE
        beat(wire, "n", 0)
        assert member.acknowledge(Ack(0, 0, 2, ACCEPT)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        other = ShareMember(wire, "g", "n", topic_id_of(wire, "t"))
        other.fetch(wait_ms=200)
        wire.produce("t", batch_of(b"new"))
        assert other.acquire() == [(6, 1)], "share.auto.offset.reset is latest"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 24 << 20) as mounted:
        yield mounted


@pytest.mark.skipif(_REASON is not None, reason=str(_REASON))
def test_a_full_disk_refuses_acknowledgements_and_loses_none(tmp_path: Path, disk: SmallDisk) -> None:
    """SharePartition.rollbackOrProcessStateUpdates: what cannot be stored is rolled back, and the lock goes on."""
    with BrokerProcess(tmp_path / "broker", data_dir=disk.path / "data", settings=QUICK) as broker:
        with Wire(broker.connect()) as wire:
            wire.create_topic("t", partitions=1)
            topic_id = topic_id_of(wire, "t")
            initialize(wire, "g", topic_id, [0])
            wire.produce("t", batch_of(*[b"x"] * 1000))
            member = ShareMember(wire, "g", "m", topic_id)
            assert len(member.acquire(max_records=1000)) == 1000
            disk.fill()
            accepted, codes = set[int](), [0]
            while codes == [0]:
                offset = len(accepted)
                codes = member.acknowledge(Ack(0, offset, offset, ACCEPT))
                accepted |= {offset} if codes == [0] else set()
            assert codes in ([ErrorCode.COORDINATOR_NOT_AVAILABLE], [ErrorCode.INVALID_RECORD_STATE])
            disk.free()
            deadline = time.monotonic() + 30
            while len(accepted) < 1000 and time.monotonic() < deadline:
                for offset, _ in member.acquire(wait_ms=500):
                    assert offset not in accepted
                    if member.acknowledge(Ack(0, offset, offset, ACCEPT)) == [0]:
                        accepted.add(offset)
            assert len(accepted) == 1000
        broker.restart()
        with Wire(broker.connect()) as wire:
            assert ShareMember(wire, "g", "n", topic_id).acquire(wait_ms=300) == []
