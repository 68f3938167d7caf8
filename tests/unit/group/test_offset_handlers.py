"""OffsetCommit, OffsetFetch and TxnOffsetCommit at every version they are served in (rows G6, T5, T6, T16)."""

from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api08_offset_commit, api09_offset_fetch, api28_txn_offset_commit
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.handler_kit import TOPIC_ID, UNKNOWN_ID, Node, versions


def commit_request(version: int, topic_id: bytes = TOPIC_ID, **fields: Any) -> Any:
    Partition = api08_offset_commit.OffsetCommitRequestPartition
    topic = api08_offset_commit.OffsetCommitRequestTopic(
        partitions=[
            Partition(partition_index=0, committed_offset=5, committed_metadata="note"),
            Partition(partition_index=9, committed_offset=5, committed_metadata=None),
        ]
    )
    if version >= 10:
        topic.topic_id = topic_id
    else:
        topic.name = "t"
    return api08_offset_commit.OffsetCommitRequest(group_id="g", topics=[topic], **fields)


@pytest.mark.parametrize("version", versions(8))
async def test_commits_are_stored_in_every_version(node: Node, version: int) -> None:
    answer = await node.ask(8, version, commit_request(version))
    [topic] = answer.topics
    assert (topic.topic_id == TOPIC_ID) if version >= 10 else (topic.name == "t")
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await node.world.offset() == 5


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_an_unknown_group_is_called_so_from_v9_on(node: Node, version: int, error: ErrorCode) -> None:
    request = commit_request(version, generation_id_or_member_epoch=3, member_id="m")
    [topic] = (await node.ask(8, version, request)).topics
    assert topic.partitions[0].error_code == error


async def test_a_topic_id_that_no_topic_has_is_unknown_to_commit_and_fetch_v10(node: Node) -> None:
    [topic] = (await node.ask(8, 10, commit_request(10, UNKNOWN_ID))).topics
    assert topic.topic_id == UNKNOWN_ID
    assert [one.error_code for one in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    [topic] = (await node.ask(9, 10, fetch_request(10, UNKNOWN_ID))).groups[0].topics
    assert topic.topic_id == UNKNOWN_ID
    assert [(one.committed_offset, one.error_code) for one in topic.partitions] == [
        (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    ] * 2


@pytest.mark.parametrize("version", versions(9))
async def test_the_error_of_a_group_stands_for_all_its_topics(node: Node, version: int) -> None:
    """`OffsetFetchResponse.groupError`: without topics from v2 on, which have an error for the whole group."""
    await node.ask(8, 2, commit_request(2))
    for partition in range(node.groups.runtime.count):
        node.groups.runtime.unload(partition)
    answer = await node.ask(9, version, fetch_request(version))
    whole = answer.groups[0] if version >= 8 else answer
    if version >= 2:
        assert (whole.error_code, whole.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert [one.error_code for one in whole.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2


@pytest.mark.parametrize(("version", "expires"), [(1, -1), (2, 60_000), (4, 60_000), (5, -1)])
async def test_a_retention_or_a_timestamp_of_old_versions_is_kept(node: Node, version: int, expires: int) -> None:
    fields = {"retention_time_ms": 60_000} if 2 <= version <= 4 else {}
    request = commit_request(version, **fields)
    if version == 1:
        request.topics[0].partitions[0].commit_timestamp = 1234
    await node.ask(8, version, request)
    shard = node.groups._shards.of("g")
    [(_, stored)] = shard.state.offsets.committed("g")
    assert (stored.commit_timestamp_ms == 1234) is (version == 1)
    assert (stored.expire_timestamp_ms - stored.commit_timestamp_ms if expires > 0 else -1) == expires


def fetch_request(version: int, topic_id: bytes = TOPIC_ID, everything: bool = False, **fields: Any) -> Any:
    if version < 8:
        topic = api09_offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
        topics = None if everything else [topic]
        return api09_offset_fetch.OffsetFetchRequest(group_id="g", topics=topics, **fields)
    many = api09_offset_fetch.OffsetFetchRequestTopics(partition_indexes=[0, 1])
    if version >= 10:
        many.topic_id = topic_id
    else:
        many.name = "t"
    groups = [
        api09_offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None if everything else [many])
        for name in ("g", "h")
    ]
    return api09_offset_fetch.OffsetFetchRequest(groups=groups, **fields)


def fetched(version: int, answer: Any) -> list[tuple[int, int, int]]:
    topics = answer.topics if version < 8 else answer.groups[0].topics
    return [(one.partition_index, one.committed_offset, one.error_code) for topic in topics for one in topic.partitions]


@pytest.mark.parametrize("version", versions(9))
async def test_positions_are_read_in_every_version(node: Node, version: int) -> None:
    await node.ask(8, 9, commit_request(9))
    answer = await node.ask(9, version, fetch_request(version))
    assert fetched(version, answer) == [(0, 5, 0), (1, -1, 0)]
    if version >= 2:
        assert fetched(version, await node.ask(9, version, fetch_request(version, everything=True))) == [(0, 5, 0)]
    if version >= 8:
        assert [group.group_id for group in answer.groups] == ["g", "h"]
        topic = answer.groups[0].topics[0]
        assert (topic.topic_id == TOPIC_ID) if version >= 10 else (topic.name == "t")


@pytest.mark.parametrize("version", versions(9, since=7))
async def test_unstable_positions_are_named_where_stable_ones_are_asked_for_t6(node: Node, version: int) -> None:
    await node.ask(28, 3, txn_request(3))
    answer = await node.ask(9, version, fetch_request(version, require_stable=True))
    assert fetched(version, answer) == [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (1, -1, 0)]
    assert fetched(version, await node.ask(9, version, fetch_request(version))) == [(0, -1, 0), (1, -1, 0)]


def txn_request(version: int, topic_id: bytes = TOPIC_ID, **fields: Any) -> Any:
    Partition = api28_txn_offset_commit.TxnOffsetCommitRequestPartition
    topic = api28_txn_offset_commit.TxnOffsetCommitRequestTopic(
        name="t",
        topic_id=topic_id,
        partitions=[Partition(partition_index=0, committed_offset=7, committed_metadata="note")],
    )
    whole = {"transactional_id": "x", "group_id": "g", "producer_id": 7, "producer_epoch": 2, "topics": [topic]}
    return api28_txn_offset_commit.TxnOffsetCommitRequest(**{**whole, **fields})


def txn_error(answer: Any) -> int:
    [topic] = answer.topics
    [partition] = topic.partitions
    error: int = partition.error_code
    return error


@pytest.mark.parametrize("version", versions(28))
async def test_the_groups_partition_is_checked_before_v5_and_added_from_v5_on_t16(node: Node, version: int) -> None:
    assert txn_error(await node.ask(28, version, txn_request(version))) == ErrorCode.NONE
    partition = TopicPartition("__consumer_offsets", node.groups.group_partition("g"))
    assert node.transactions.asked == [("x", 7, 2, (partition,), version >= 5, version >= 4)]
    assert await node.world.offset() == -1
    node.world.end_transaction(7, commit=True)
    assert await node.world.offset() == 7


@pytest.mark.parametrize(
    ("version", "code", "shown"),
    [
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (3, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (0, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_what_the_transaction_says_is_shown_as_each_version_knows_it(
    node: Node, version: int, code: ErrorCode, shown: ErrorCode
) -> None:
    node.transactions.code = code
    assert txn_error(await node.ask(28, version, txn_request(version))) == shown
    assert node.world.logs.logs == {}


async def test_a_transaction_needs_a_group_with_a_name(node: Node) -> None:
    assert txn_error(await node.ask(28, 5, txn_request(5, group_id=""))) == ErrorCode.INVALID_GROUP_ID
    assert node.transactions.asked == []


async def test_a_stale_generation_is_fenced_from_v3_on_kip_447(node: Node) -> None:
    member_id, generation = await node.one_member()
    stale = {"generation_id_or_member_epoch": generation - 1, "member_id": member_id}
    assert txn_error(await node.ask(28, 3, txn_request(3, **stale))) == ErrorCode.ILLEGAL_GENERATION
    assert txn_error(await node.ask(28, 2, txn_request(2))) == ErrorCode.NONE


@pytest.mark.parametrize("version", versions(28, since=3))
async def test_a_generation_of_a_group_that_is_not_there_is_refused_by_version_t5(node: Node, version: int) -> None:
    """KIP-1319: GROUP_ID_NOT_FOUND from v6 on, ILLEGAL_GENERATION before."""
    lost = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.ILLEGAL_GENERATION
    assert txn_error(await node.ask(28, version, txn_request(version, **lost))) == expected


@pytest.mark.parametrize("version", versions(28, since=3))
async def test_who_commits_is_checked_against_the_group_t5(node: Node, version: int) -> None:
    """KIP-447. A group of the classic protocol says ILLEGAL_GENERATION in v6, too; STALE_MEMBER_EPOCH is KIP-848's."""
    member_id, generation = await node.one_member()
    for member, asked, expected in (
        (member_id, generation, ErrorCode.NONE),
        (member_id, generation - 1, ErrorCode.ILLEGAL_GENERATION),
        (member_id, generation + 1, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", generation, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ):
        request = txn_request(version, generation_id_or_member_epoch=asked, member_id=member)
        assert txn_error(await node.ask(28, version, request)) == expected, (member, asked)


async def test_a_topic_id_that_no_topic_has_is_an_error_and_adds_nothing_t5(node: Node) -> None:
    assert txn_error(await node.ask(28, 6, txn_request(6, UNKNOWN_ID))) == ErrorCode.UNKNOWN_TOPIC_ID
    assert node.transactions.asked == []
