"""Requests of rights_plays.py: each is about resources of the client, of others, and absent ones."""

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.protocol.registry import API_BY_KEY
from tests.golden.group_scenarios import message
from tests.golden.rights_scenarios import CLIENTS, TOPIC, Case, Stage
from tests.kit.wire import batch_of

TOPICS = ("mine", "theirs", "mine-absent", "theirs-absent")
UNKNOWN_ID = b"\1" * 16
DENIED = tuple(client for client in CLIENTS if client != "all")
NO_PRODUCER = 987_654


def request(api_key: int, **fields: Any) -> Any:
    return message(api_key, f"{API_BY_KEY[api_key].name}Request", **fields)


def about(api_key: int, *versions: int, **fields: Any) -> list[Case]:
    """A question that is the same in all versions; the oldest and the newest one if none are named."""
    return [Case(API_BY_KEY[api_key].name, api_key, versions or ends(api_key), lambda *_: request(api_key, **fields))]


def ends(api_key: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(API_BY_KEY[api_key].advertised))


def each(api_key: int, field: str, what: str, *versions: int, **fields: Any) -> list[Case]:
    """The same question about a group or transactional id of the client, and about one of others."""
    return [
        Case(
            f"{API_BY_KEY[api_key].name} of {name}",
            api_key,
            versions or ends(api_key),
            lambda *_, name=name: request(api_key, **{field: name}, **fields),
        )
        for name in (f"mine-{what}", f"theirs-{what}")
    ]


def topics_of(stage: Stage, make: Callable[..., Any], by_id: bool, field: str = "name") -> list[Any]:
    """A part of a request for each topic: by name, or by id with an unknown one."""
    if not by_id:
        return [make(**{field: name}) for name in TOPICS]
    return [make(topic_id=topic_id) for topic_id in (stage.ids["mine"], stage.ids["theirs"], UNKNOWN_ID)]


def produce(version: int, stage: Stage) -> Any:
    part = message(0, "PartitionProduceData", index=0, records=batch_of(b"a"))
    made = topics_of(stage, lambda **name: message(0, "TopicProduceData", partition_data=[part], **name), version >= 13)
    return request(0, acks=-1, timeout_ms=30_000, topic_data=made)


def produce_in_transaction(transactional_id: str) -> Callable[[int, Stage], Any]:
    batch = batch_of(b"a", producer_id=NO_PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    part = message(0, "PartitionProduceData", index=0, records=batch)
    topics = [message(0, "TopicProduceData", name=name, partition_data=[part]) for name in ("mine", "theirs")]
    return lambda *_: request(0, transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)


def fetch(version: int, stage: Stage, **fields: Any) -> Any:
    part = message(1, "FetchPartition", partition=0, partition_max_bytes=1 << 20)
    made = topics_of(stage, lambda **one: message(1, "FetchTopic", partitions=[part], **one), version >= 13, "topic")
    return request(1, topics=made, max_wait_ms=0, min_bytes=0, **fields)


def list_offsets(_version: int, _stage: Stage) -> Any:
    part = message(2, "ListOffsetsPartition", partition_index=0, timestamp=-1)
    return request(
        2, replica_id=-1, topics=[message(2, "ListOffsetsTopic", name=name, partitions=[part]) for name in TOPICS]
    )


def metadata(version: int, _stage: Stage) -> Any:
    asked: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    if version >= 8:
        asked["include_topic_authorized_operations"] = True
    if version == 8:
        asked["include_cluster_authorized_operations"] = True
    names = TOPICS if version >= 4 else TOPICS[:2]
    return request(3, topics=[message(3, "MetadataRequestTopic", name=name) for name in names], **asked)


def metadata_by_id(_version: int, stage: Stage) -> Any:
    ids = (stage.ids["mine"], stage.ids["theirs"], UNKNOWN_ID)
    topics = [message(3, "MetadataRequestTopic", topic_id=topic_id, name=None) for topic_id in ids]
    return request(3, topics=topics, allow_auto_topic_creation=False)


def metadata_of_all(version: int, _stage: Stage) -> Any:
    return request(3, topics=[] if version == 0 else None)


def metadata_with_creation(version: int, stage: Stage) -> Any:
    name = f"theirs-auto{version}-{stage.client}"
    return request(3, topics=[message(3, "MetadataRequestTopic", name=name)])


def commit(group: str, api_key: int = 8, by_id_since: int = 10, **fields: Any) -> Callable[[int, Stage], Any]:
    def ask(version: int, stage: Stage) -> Any:
        name = API_BY_KEY[api_key].name
        part = message(api_key, f"{name}RequestPartition", partition_index=0, committed_offset=1, committed_metadata="")
        made = topics_of(
            stage,
            lambda **one: message(api_key, f"{name}RequestTopic", partitions=[part], **one),
            version >= by_id_since,
        )
        return request(api_key, group_id=group, topics=made, **fields)

    return ask


def offset_fetch(group: str, every: bool) -> Callable[[int, Stage], Any]:
    def ask(version: int, stage: Stage) -> Any:
        if version < 8:
            made = [message(9, "OffsetFetchRequestTopic", name=name, partition_indexes=[0]) for name in TOPICS]
            return request(9, group_id=group, topics=None if every else made)
        made = topics_of(
            stage, lambda **one: message(9, "OffsetFetchRequestTopics", partition_indexes=[0], **one), version >= 10
        )
        return request(
            9, groups=[message(9, "OffsetFetchRequestGroup", group_id=group, topics=None if every else made)]
        )

    return ask


def find(key_type: int, what: str) -> list[Case]:
    def ask(name: str) -> Callable[[int, Stage], Any]:
        def made(version: int, _stage: Stage) -> Any:
            kind = {"key_type": key_type} if version >= 1 else {}
            return request(10, **kind, **({"coordinator_keys": [name]} if version >= 4 else {"key": name}))

        return made

    versions = (0, 3, 6) if key_type == 0 else (1, 6)
    return [Case(f"FindCoordinator of {name}", 10, versions, ask(name)) for name in (f"mine-{what}", f"theirs-{what}")]


def join(group: str) -> Callable[[int, Stage], Any]:
    protocol = message(11, "JoinGroupRequestProtocol", name="range", metadata=b"")
    fields = {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": [protocol]}
    return lambda version, _: request(
        11, group_id=group, **fields, **({"rebalance_timeout_ms": 10_000} if version >= 1 else {})
    )


def create_topics(_version: int, stage: Stage) -> Any:
    made = [
        message(
            19, "CreatableTopic", name=f"{name}-made{_version}-{stage.client}", num_partitions=1, replication_factor=1
        )
        for name in ("mine", "theirs")
    ]
    return request(19, topics=[*made, message(19, "CreatableTopic", name="theirs")], timeout_ms=30_000)


def delete_topics(version: int, stage: Stage) -> Any:
    names = [f"{whose}-gone{version}-{stage.client}" for whose in ("mine", "theirs")]
    names += ["mine-absent", "theirs-absent"]
    if version < 6:
        return request(20, topic_names=names, timeout_ms=30_000)
    topics = [message(20, "DeleteTopicState", name=name) for name in names]
    ids = [stage.ids[f"{whose}-id6-{stage.client}"] for whose in ("mine", "theirs")]
    topics += [message(20, "DeleteTopicState", name=None, topic_id=topic_id) for topic_id in (*ids, UNKNOWN_ID)]
    return request(20, topics=topics, timeout_ms=30_000)


def create_partitions(version: int, stage: Stage) -> Any:
    names = [f"{whose}-more{version}-{stage.client}" for whose in ("mine", "theirs")]
    topics = [
        message(37, "CreatePartitionsTopic", name=name, count=2, assignments=None)
        for name in (*names, "mine-absent", "theirs-absent")
    ]
    return request(37, topics=topics, timeout_ms=30_000)


def add_partitions(transactional_id: str, *names: str) -> Callable[[int, Stage], Any]:
    topics = [message(24, "AddPartitionsToTxnTopic", name=name, partitions=[0]) for name in names]

    def ask(version: int, _stage: Stage) -> Any:
        if version < 4:
            return request(
                24,
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=NO_PRODUCER,
                v3_and_below_topics=topics,
            )
        one = message(
            24,
            "AddPartitionsToTxnTransaction",
            transactional_id=transactional_id,
            producer_id=NO_PRODUCER,
            verify_only=True,
            topics=topics,
        )
        return request(24, transactions=[one])

    return ask


def markers(_version: int, _stage: Stage) -> Any:
    topics = [message(27, "WritableTxnMarkerTopic", name=name, partition_indexes=[0]) for name in ("theirs-absent",)]
    return request(27, markers=[message(27, "WritableTxnMarker", producer_id=NO_PRODUCER, topics=topics)])


RESOURCES = [
    *((TOPIC, name) for name in TOPICS),
    *((32, name) for name in ("mine-g", "theirs-g")),
    (4, "1"),
    (4, ""),
    (8, "1"),
    (16, "metrics"),
]
"""Topics, groups, the broker and all brokers, loggers, client metrics: by their types as resources of settings."""
READABLE = [one for one in RESOURCES if one != (4, "")]
"""Without all brokers: Kafka 4.3 has a setting there from its start (KIP-966)."""


def configs(api_key: int, struct: str, resources: Sequence[tuple[int, str]], **fields: Any) -> list[Any]:
    return [message(api_key, struct, resource_type=kind, resource_name=name, **fields) for kind, name in resources]


def on_topics(api_key: int, struct: str, field: str, parts: list[Any], name: str = "name") -> list[Any]:
    return [message(api_key, struct, **{name: topic}, **{field: parts}) for topic in TOPICS]


def heartbeat(group: str, topics: list[str]) -> list[Case]:
    return [
        Case(
            f"ConsumerGroupHeartbeat of {group} for {' and '.join(topics)}",
            68,
            (0, 1),
            lambda *_: request(
                68,
                group_id=group,
                member_id="AAAAAAAAAAAAAAAAAAAAAA",
                member_epoch=5,
                subscribed_topic_names=topics,
                topic_partitions=[],
            ),
        )
    ]


def share_groups() -> list[Case]:
    """What members, admins and brokers ask about share groups (KIP-932)."""
    member = {"member_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    partition = {83: {}, 84: {}, 85: {"state_batches": []}, 86: {}, 87: {}}
    states = {83: "InitializeState", 84: "ReadState", 85: "WriteState", 86: "DeleteState", 87: "ReadStateSummary"}
    found = [
        *each(76, "group_id", "share", **member, member_epoch=5, subscribed_topic_names=["mine"]),
        Case(
            "ShareGroupHeartbeat for mine and theirs",
            76,
            ends(76),
            lambda *_: request(
                76, group_id="mine-share", **member, member_epoch=5, subscribed_topic_names=["mine", "theirs"]
            ),
        ),
        *about(77, group_ids=["mine-absent", "theirs-absent"]),
        *each(78, "group_id", "share", **member, share_session_epoch=5, max_wait_ms=0),
        *each(79, "group_id", "share", **member, share_session_epoch=5),
        *about(
            90,
            groups=[
                message(
                    90, "AskedGroup", group_id=name, topics=on_topics(90, "AskedTopic", "partitions", [0], "topic_name")
                )
                for name in ("mine-absent", "theirs-absent")
            ],
        ),
        *each(
            91,
            "group_id",
            "absent",
            topics=[  # of a topic that is there Kafka shows the id also to who may not read it
                message(91, "AlteredTopic", topic_name=name, partitions=[message(91, "AlteredPartition")])
                for name in ("mine", "theirs-absent")
            ],
        ),
        *each(92, "group_id", "absent", topics=[message(92, "DeletedTopic", topic_name=name) for name in TOPICS]),
    ]
    for key, name in states.items():
        part = message(key, "PartitionData", **partition[key])
        topic = message(key, f"{name}Data", topic_id=UNKNOWN_ID, partitions=[part])
        found += [one._replace(clients=DENIED) for one in about(key, group_id="mine-share", topics=[topic])]
    return found


FILTER = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": "mine",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
QUOTA = [
    message(
        49,
        "EntryData",
        entity=[message(49, "EntityData", entity_type="user", entity_name="bob")],
        ops=[message(49, "OpData", key="producer_byte_rate", value=1000.0)],
    )
]
