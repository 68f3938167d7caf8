"""The plays of an administrator that are about the cluster: its records, its one node, its quorum, its features."""

from typing import Any

from tests.golden.admin_scenarios import METADATA, Desk, ordered
from tests.golden.group_scenarios import Stage, message, plain
from tests.kit.wire import batch_of, produce_request

DELETE_RECORDS, EPOCHS, MOVE, LOG_DIRS, ELECT, REASSIGN, REASSIGNED = 21, 23, 34, 35, 43, 45, 46
QUORUM, FEATURES, CLUSTER, RESOURCES, PARTITIONS, PRODUCE, FETCH, UNREGISTER = 55, 57, 60, 74, 75, 0, 1, 64


def records(stage: Stage) -> None:
    """DeleteRecords and OffsetForLeaderEpoch (D8, KIP-107, KIP-320)."""
    desk = Desk(stage)
    topic, _ = desk.topic("r", 2)
    compacted, _ = desk.topic("k", cleanup_policy="compact")
    for _ in range(3):
        desk.produce(topic)
    none = desk.named("none")

    def ends(step: str, version: int, *asked: tuple[str, int, int, int]) -> None:
        topics = [
            message(
                EPOCHS,
                "OffsetForLeaderTopic",
                topic=name,
                partitions=[
                    message(
                        EPOCHS,
                        "OffsetForLeaderPartition",
                        partition=number,
                        leader_epoch=epoch,
                        **({"current_leader_epoch": current} if version >= 2 else {}),
                    )
                ],
            )
            for name, number, current, epoch in asked
        ]
        desk.ask(step, EPOCHS, version, lambda answer: ordered(answer.topics, "topic"), topics=topics)

    for version in (2, 3, 4):
        for current in (-1, 0, 5):
            for epoch in (-2, -1, 0, 1, 9):
                ends(f"epoch {epoch} seen from {current}", version, (topic, 0, current, epoch))
        ends("of nothing", version, (none, 0, -1, 0), (topic, 9, -1, 0))
        ends("of an empty one", version, (topic, 1, -1, 0))

    def delete(step: str, offset: int, name: str = topic, number: int = 0, version: int = 2) -> None:
        part = message(DELETE_RECORDS, "DeleteRecordsPartition", partition_index=number, offset=offset)
        one = message(DELETE_RECORDS, "DeleteRecordsTopic", name=name, partitions=[part])
        desk.ask(step, DELETE_RECORDS, version, topics=[one], timeout_ms=10_000)

    for version in range(3):
        delete(f"to {version}", version, version=version)
        for name, number in ((none, 0), (topic, 9), (topic, -1), ("bad/name", 0)):
            delete(f"of {name}-{number}", 0, name, number, version)
    for offset in (7, -2, 1, 5, -1):
        delete(f"to {offset}", offset)
    delete("of a compacted one", 0, compacted)
    delete("of an internal one", 0, "__consumer_offsets")
    ends("after it", 4, (topic, 0, -1, 0))


def by_topic_id(stage: Stage) -> None:
    """Topic ids in Metadata, Fetch and Produce (KIP-516)."""
    desk = Desk(stage)
    topic, topic_id = desk.topic("id")
    for version in range(10, 14):
        for told, fields in (
            ("named", {"name": topic}),
            ("by id", {"name": None, "topic_id": topic_id}),
            ("by an id of nothing", {"name": None, "topic_id": b"z" * 16}),
            ("by both", {"name": topic, "topic_id": topic_id}),
        ):
            if version < 12 and fields["name"] is None:
                continue
            asked = [message(METADATA, "MetadataRequestTopic", **fields)]
            more = {"allow_auto_topic_creation": False}
            desk.ask(told, METADATA, version, lambda a: ordered(a.topics, "name", "topic_id"), topics=asked, **more)
    module = __import__("fencepost.protocol.messages.api00_produce", fromlist=["x"])
    for told, chosen in (("by id", topic_id), ("by an id of nothing", b"z" * 16), ("by the zero id", bytes(16))):
        part = module.PartitionProduceData(index=0, records=batch_of(b"a"))
        one = module.TopicProduceData(topic_id=chosen, partition_data=[part])
        desk.ask(told, PRODUCE, 13, _produced, acks=-1, timeout_ms=10_000, topic_data=[one])
        asked = message(FETCH, "FetchTopic", topic_id=chosen, partitions=[_from(0)])
        for version in (13, 18):
            desk.ask(f"read {told}", FETCH, version, _fetched, max_wait_ms=0, min_bytes=0, topics=[asked])
    old = produce_request(topic, batch_of(b"b"))
    stage.keep("named", _produced(desk.wire.call(PRODUCE, 12, old)))


def _from(offset: int) -> Any:
    return message(FETCH, "FetchPartition", partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)


def _produced(answer: Any) -> Any:
    for topic in answer.responses:
        for part in topic.partition_responses:
            part.log_append_time_ms = -1
    return plain(answer)


def _fetched(answer: Any) -> Any:
    answer.session_id = 0
    return [
        answer.error_code,
        [
            [topic.topic_id.hex(), part.partition_index, part.error_code, part.high_watermark, bool(part.records)]
            for topic in answer.responses
            for part in topic.partitions
        ],
    ]


def log_directories(stage: Stage) -> None:
    """DescribeLogDirs and AlterReplicaLogDirs of a node with one directory (D8)."""
    desk = Desk(stage)
    topic, _ = desk.topic("d", 2)
    desk.produce(topic)
    none = desk.named("none")

    def trim(answer: Any) -> Any:
        for one in answer.results:
            stage.name(one.log_dir, "DIRECTORY")
            one.total_bytes, one.usable_bytes = one.total_bytes > 0, one.usable_bytes > 0
            one.topics = [topic for topic in one.topics if stage.run in topic.name]
            for found in one.topics:
                found.partitions.sort(key=lambda part: part.partition_index)
        return plain(answer)

    both = [message(LOG_DIRS, "DescribableLogDirTopic", topic=topic, partitions=[0, 1])]
    desk.until(LOG_DIRS, 4, lambda told: [len(one.partitions) for one in told.results[0].topics] == [2], topics=both)
    for version in range(1, 6):
        desk.ask("some", LOG_DIRS, version, trim, topics=both)
        one = [message(LOG_DIRS, "DescribableLogDirTopic", topic=topic, partitions=[1])]
        desk.ask("one", LOG_DIRS, version, trim, topics=one)
        nothing = [message(LOG_DIRS, "DescribableLogDirTopic", topic=none, partitions=[0])]
        desk.ask("no such", LOG_DIRS, version, trim, topics=nothing)
        desk.ask("none at all", LOG_DIRS, version, trim, topics=[])
        answer = desk.ask("all", LOG_DIRS, version, trim, topics=None)
    here = answer.results[0].log_dir

    def move(step: str, path: str, name: str, *numbers: int, version: int = 2) -> None:
        moved = message(MOVE, "AlterReplicaLogDirTopic", name=name, partitions=list(numbers))
        to = message(MOVE, "AlterReplicaLogDir", path=path, topics=[moved])
        desk.ask(step, MOVE, version, _moved, dirs=[to])

    for version in (1, 2):
        move("to where it is", here, topic, 0, 1, version=version)
        move("to nowhere", "/no/such/place", topic, 0, version=version)
        move("to no absolute place", "place", topic, 0, version=version)
        move("of no topic", here, none, 0, version=version)
        move("of no partition", here, topic, 7, version=version)


def _moved(answer: Any) -> Any:
    for topic in answer.results:
        topic.partitions.sort(key=lambda part: part.partition_index)
    return plain(answer.results)


def leaders(stage: Stage) -> None:
    """ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments of a single node (D8)."""
    desk = Desk(stage)
    topic, _ = desk.topic("e", 2)
    none = desk.named("none")

    def elect(step: str, kind: int, *places: tuple[str, list[int]], version: int = 2) -> None:
        asked = [message(ELECT, "TopicPartitions", topic=name, partitions=numbers) for name, numbers in places]
        fields = {"topic_partitions": asked, "timeout_ms": 10_000, **({"election_type": kind} if version else {})}
        desk.ask(step, ELECT, version, _elected, **fields)

    for version in range(3):
        for kind in (0, 1) if version else (0,):
            elect(f"kind {kind}", kind, (topic, [0, 1]), version=version)
            elect(f"kind {kind} of nothing", kind, (none, [0]), (topic, [9]), version=version)

    def all_of_ours(answer: Any) -> Any:
        return [answer.error_code, [one for one in answer.replica_election_results if stage.run in one.topic]]

    desk.ask("all", ELECT, 2, all_of_ours, topic_partitions=None, timeout_ms=10_000)

    def reassign(step: str, replicas: list[int] | None, name: str = topic, number: int = 0, **more: Any) -> None:
        part = message(REASSIGN, "ReassignablePartition", partition_index=number, replicas=replicas)
        one = message(REASSIGN, "ReassignableTopic", name=name, partitions=[part])
        desk.ask(step, REASSIGN, 1 if more else 0, topics=[one], timeout_ms=10_000, **more)

    for more in ({}, {"allow_replication_factor_change": False}):
        reassign("to itself", [1], **more)
        reassign("given up", None, **more)
        reassign("to no broker", [7], **more)
        reassign("to two", [1, 7], **more)
        reassign("twice the same", [1, 1], **more)
        reassign("to nobody", [], **more)
        reassign("to a negative one", [-1], **more)
        reassign("of nothing", [1], none, **more)
        reassign("of no partition", [1], topic, 9, **more)
    desk.ask("under way", REASSIGNED, 0, topics=None)
    for name in (topic, none):
        asked = [message(REASSIGNED, "ListPartitionReassignmentsTopics", name=name, partition_indexes=[0, 9])]
        desk.ask(f"of {name}", REASSIGNED, 0, topics=asked)


def _elected(answer: Any) -> Any:
    for one in answer.replica_election_results:
        one.partition_result.sort(key=lambda part: part.partition_id)
    results = ordered(answer.replica_election_results, "topic")
    return [getattr(answer, "error_code", None), results]


def cluster(stage: Stage) -> None:
    """DescribeCluster, DescribeQuorum, UpdateFeatures, ListConfigResources, DescribeTopicPartitions (D3)."""
    desk = Desk(stage)

    def about_us(answer: Any) -> Any:
        answer.cluster_id = bool(answer.cluster_id)
        for broker in answer.brokers:
            broker.port = broker.port > 0
        return plain(answer)

    for version in range(3):
        for kind in (1, 2, 0, 7) if version else (1,):
            for operations in (False, True):
                fields = {"include_cluster_authorized_operations": operations}
                more = {"endpoint_type": kind} if version else {}
                desk.ask(f"endpoint {kind}, {operations}", CLUSTER, version, about_us, **fields, **more)

    def quorum(answer: Any) -> Any:
        for topic in answer.topics:
            for part in topic.partitions:
                part.leader_epoch, part.high_watermark = part.leader_epoch >= 0, part.high_watermark > 0
                for voter in part.current_voters:
                    voter.log_end_offset = voter.log_end_offset > 0
                    voter.last_fetch_timestamp = voter.last_fetch_timestamp > 0
                    voter.last_caught_up_timestamp = voter.last_caught_up_timestamp > 0
                    voter.replica_directory_id = bytes(16)
        for node in getattr(answer, "nodes", ()):
            for listener in node.listeners:
                listener.name, listener.port = bool(listener.name), listener.port > 0
        return plain(answer)

    def voters(*asked: tuple[str, int]) -> list[Any]:
        return [
            message(
                QUORUM, "TopicData", topic_name=name, partitions=[message(QUORUM, "PartitionData", partition_index=n)]
            )
            for name, n in asked
        ]

    for version in range(3):
        desk.ask("quorum", QUORUM, version, quorum, topics=voters(("__cluster_metadata", 0)))
        desk.ask("of another partition", QUORUM, version, quorum, topics=voters(("__cluster_metadata", 1)))
        desk.ask("of another topic", QUORUM, version, quorum, topics=voters(("none", 0)))
        desk.ask("of none", QUORUM, version, quorum, topics=[])
    for number in (7, -1):
        desk.ask(f"broker {number} forgotten", UNREGISTER, 0, broker_id=number)
    _features(desk)
    for kinds in ([1], [0], [64], [4, 64]):
        desk.ask(f"resources of kind {kinds}", RESOURCES, 1, resource_types=kinds)
    _pages(stage, desk)


def _features(desk: Desk) -> None:
    def update(step: str, version: int, *updates: tuple[str, int, int]) -> None:
        keys = []
        for name, level, kind in updates:
            way = {"upgrade_type": kind} if version else {"allow_downgrade": kind > 1}
            keys.append(message(FEATURES, "FeatureUpdateKey", feature=name, max_version_level=level, **way))
        desk.ask(step, FEATURES, version, _codes, feature_updates=keys, validate_only=True)

    for version in (1, 2):
        update("to the same", version, ("transaction.version", 2, 1))
        update("down without saying so", version, ("transaction.version", 1, 1))
        update("down", version, ("transaction.version", 1, 2))
        update("too far", version, ("transaction.version", 9, 1))
        update("negative", version, ("transaction.version", -1, 1))
        update("unknown", version, ("no.such", 1, 1))
        update("one of two", version, ("group.version", 0, 2), ("no.such", 1, 1))
        update("no way", version, ("transaction.version", 1, 9))
        update("up by a downgrade", version, ("transaction.version", 9, 2))
        update("metadata.version 1", version, ("metadata.version", 1, 3))
        update("metadata.version 99", version, ("metadata.version", 99, 1))
        update("metadata.version 0", version, ("metadata.version", 0, 3))
        update("nothing", version)


def _codes(answer: Any) -> Any:
    return [answer.error_code, [[one.feature, one.error_code] for one in answer.results or ()]]


def _pages(stage: Stage, desk: Desk) -> None:
    topics = [desk.topic(name, 3)[0] for name in ("p", "q")]
    none = desk.named("none")

    def page(step: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        asked = [message(PARTITIONS, "TopicRequest", name=name) for name in names]
        at = None if cursor is None else message(PARTITIONS, "Cursor", topic_name=cursor[0], partition_index=cursor[1])
        desk.ask(step, PARTITIONS, 0, _page, topics=asked, response_partition_limit=limit, cursor=at)

    page("both", *topics)
    page("one and none", topics[0], none, "bad/name")
    for limit in (4, 3, 1, 0, -1):
        page(f"at most {limit}", *topics, limit=limit)
    for cursor in ((topics[0], 2), (topics[1], 0), (topics[1], 9), (none, 0), (topics[0], -1)):
        page(f"from {cursor[0]}-{cursor[1]}", *topics, cursor=cursor)


def _page(answer: Any) -> Any:
    return [plain(answer.topics), plain(answer.next_cursor)]


CLUSTER_PLAYS = (records, by_topic_id, log_directories, leaders, cluster)
