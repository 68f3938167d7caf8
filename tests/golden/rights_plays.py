"""The questions of rights_scenarios.py: every API."""

from tests.golden.group_scenarios import message
from tests.golden.rights_requests import (
    DENIED,
    FILTER,
    NO_PRODUCER,
    QUOTA,
    READABLE,
    RESOURCES,
    TOPICS,
    about,
    add_partitions,
    commit,
    configs,
    create_partitions,
    create_topics,
    delete_topics,
    each,
    fetch,
    find,
    heartbeat,
    join,
    list_offsets,
    markers,
    metadata,
    metadata_by_id,
    metadata_of_all,
    metadata_with_creation,
    offset_fetch,
    on_topics,
    produce,
    produce_in_transaction,
    request,
    share_groups,
)
from tests.golden.rights_scenarios import TOPIC, Case

CASES: list[Case] = [
    Case("Produce", 0, (3, 12, 13), produce),
    *(Case(f"Produce in {name}", 0, (9, 12), produce_in_transaction(name), DENIED) for name in ("mine-t", "theirs-t")),
    Case("Fetch", 1, (4, 12, 13, 18), fetch),
    Case("Fetch of a follower", 1, (12,), lambda version, stage: fetch(version, stage, replica_id=7), DENIED),
    Case("ListOffsets", 2, (1, 11), list_offsets),
    Case("Metadata", 3, (0, 4, 8, 13), metadata),
    Case("Metadata by id", 3, (12, 13), metadata_by_id),
    Case("Metadata of all topics", 3, (0, 1, 13), metadata_of_all),
    Case("Metadata with creation", 3, (1, 13), metadata_with_creation, ("none", "mine", "describer")),
    *(Case(f"OffsetCommit of {group}", 8, (2, 9, 10), commit(group)) for group in ("mine-g", "theirs-g")),
    *(
        Case(f"OffsetFetch of {group}", 9, (1, 7, 9, 10), offset_fetch(group, False))
        for group in ("mine-g", "theirs-g")
    ),
    *(
        Case(f"OffsetFetch of all in {group}", 9, (2, 9, 10), offset_fetch(group, True))
        for group in ("mine-g", "theirs-g")
    ),
    *find(0, "g"),
    *find(1, "t"),
    *(Case(f"JoinGroup of {group}", 11, (9,), join(group)) for group in ("mine-joined", "theirs-joined")),
    *(Case(f"JoinGroup of {group}", 11, (0,), join(group), ("none", "describer")) for group in ("mine-g", "theirs-g")),
    *each(12, "group_id", "g", member_id="nobody"),
    *each(13, "group_id", "g", 0, member_id="nobody"),
    *each(13, "group_id", "g", 5, members=[message(13, "MemberIdentity", member_id="nobody")]),
    *each(14, "group_id", "g", 0, member_id="nobody", generation_id=1),
    *each(14, "group_id", "g", 5, member_id="nobody", generation_id=1, protocol_type="consumer", protocol_name="range"),
    *about(15, 0, 6, groups=["mine-g", "theirs-g", "mine-absent", "theirs-absent"]),
    *about(15, 3, groups=["mine-g", "theirs-g"], include_authorized_operations=True),
    *about(16),
    *about(17, mechanism="PLAIN"),
    Case("CreateTopics", 19, (2, 5, 7), create_topics),
    Case("DeleteTopics", 20, (1, 5, 6), delete_topics),
    *about(
        21,
        topics=on_topics(
            21, "DeleteRecordsTopic", "partitions", [message(21, "DeleteRecordsPartition", partition_index=0, offset=0)]
        ),
        timeout_ms=30_000,
    ),
    *about(22, 0, 5, transactional_id=None, transaction_timeout_ms=60_000),
    *each(22, "transactional_id", "pid", 0, 5, transaction_timeout_ms=60_000),
    *about(
        23,
        topics=on_topics(
            23,
            "OffsetForLeaderTopic",
            "partitions",
            [message(23, "OffsetForLeaderPartition", partition=0, leader_epoch=0)],
            "topic",
        ),
    ),
    *(
        Case(
            f"AddPartitionsToTxn of {name} with {' and '.join(topics)}", 24, (0, 3, 4, 5), add_partitions(name, *topics)
        )
        for name in ("mine-t", "theirs-t")
        for topics in (("mine", "theirs"), ("mine", "mine-absent"))
    ),
    *(
        Case(
            f"AddOffsetsToTxn of {name} for {group}",
            25,
            (0, 4),
            lambda *_, name=name, group=group: request(
                25, transactional_id=name, group_id=group, producer_id=NO_PRODUCER
            ),
        )
        for name in ("mine-t", "theirs-t")
        for group in ("mine-g", "theirs-g")
    ),
    *each(26, "transactional_id", "t", producer_id=NO_PRODUCER),
    Case("WriteTxnMarkers", 27, (1, 2), markers),
    *(
        Case(
            f"TxnOffsetCommit of {name} for {group}",
            28,
            (0, 5),
            commit(group, 28, 6, transactional_id=name, producer_id=NO_PRODUCER),
            DENIED,
        )
        for name in ("mine-t", "theirs-t")
        for group in ("mine-g", "theirs-g")
    ),
    *about(29, **FILTER),
    Case(
        "CreateAcls",
        30,
        (1, 3),
        lambda _version, stage: request(
            30,
            creations=[
                message(
                    30,
                    "AclCreation",
                    resource_type=TOPIC,
                    resource_name="made",
                    resource_pattern_type=3,
                    principal=f"User:{stage.client}",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ],
        ),
    ),
    *about(31, filters=[message(31, "DeleteAclsFilter", **{**FILTER, "resource_name_filter": "nothing"})]),
    *about(32, resources=configs(32, "DescribeConfigsResource", READABLE, configuration_keys=None)),
    *about(
        33,
        resources=configs(33, "AlterConfigsResource", [*RESOURCES[:4], RESOURCES[6]], configs=[]),
        validate_only=True,
    ),
    *about(44, resources=configs(44, "AlterConfigsResource", RESOURCES, configs=[]), validate_only=True),
    *about(
        34,
        dirs=[
            message(
                34,
                "AlterReplicaLogDir",
                path="/nowhere",
                topics=on_topics(34, "AlterReplicaLogDirTopic", "partitions", [0])[:2],
            )
        ],
    ),
    *about(35, topics=[message(35, "DescribableLogDirTopic", topic=name, partitions=[0]) for name in TOPICS[:2]]),
    *about(36, auth_bytes=b"x"),
    Case("CreatePartitions", 37, (0, 3), create_partitions),
    *about(42, groups_names=["mine-absent", "theirs-absent"]),
    *about(43, topic_partitions=on_topics(43, "TopicPartitions", "partitions", [0], "topic")),
    *about(
        45,
        topics=on_topics(
            45, "ReassignableTopic", "partitions", [message(45, "ReassignablePartition", partition_index=0)]
        ),
    ),
    *about(46, topics=[message(46, "ListPartitionReassignmentsTopics", name="mine", partition_indexes=[0])]),
    *each(
        47,
        "group_id",
        "g",
        topics=on_topics(
            47,
            "OffsetDeleteRequestTopic",
            "partitions",
            [message(47, "OffsetDeleteRequestPartition", partition_index=7)],
        ),
    ),
    *about(48, components=[], strict=False),
    *about(49, entries=QUOTA, validate_only=True),
    *about(50, users=[message(50, "UserName", name="nobody")]),
    *about(51, deletions=[message(51, "ScramCredentialDeletion", name="nobody", mechanism=1)]),
    *about(
        55,
        topics=[
            message(
                55,
                "TopicData",
                topic_name="__cluster_metadata",
                partitions=[message(55, "PartitionData", partition_index=0)],
            )
        ],
    ),
    *about(57, 1, 2, feature_updates=[], validate_only=True),
    *about(60, include_cluster_authorized_operations=True),
    *about(61, topics=on_topics(61, "TopicRequest", "partition_indexes", [0])),
    *about(64, broker_id=77),
    *about(65, transactional_ids=["mine-t", "theirs-t", "mine-absent", "theirs-absent"]),
    *about(66),
    *(case for group in ("mine-c", "theirs-c") for case in heartbeat(group, ["mine"])),
    *heartbeat("mine-c", ["mine", "theirs"]),
    *about(69, group_ids=["mine-absent", "theirs-absent"]),
    *about(74, 0),
    *about(74, 1, resource_types=[TOPIC]),
    *about(75, topics=[message(75, "TopicRequest", name=name) for name in TOPICS], cursor=None),
    *share_groups(),
    Case("DescribeTopicPartitions of all", 75, (0,), lambda *_: request(75, topics=[], cursor=None)),
]
