"""The admin client: topics, configurations, groups and features. Transactions are in `transactions.py`."""

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

import trio

from fencepost.client.admin.requests import final_error
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.admin.types import (
    ConfigEntry,
    GroupDescription,
    GroupListing,
    GroupMember,
    HangingTransaction,
    HeldBack,
    OffsetInfo,
    TopicDescription,
    consumer_group_description,
)
from fencepost.client.assignors import decode_assignment
from fencepost.client.cluster import Cluster
from fencepost.client.errors import KafkaError, code_of, error_for
from fencepost.client.group_requests import EARLIEST, LATEST, by_topic, commit_offsets, fetch_committed, list_offsets
from fencepost.client.txn_requests import CommittedOffset, GroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api15_describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.api16_list_groups import ListGroupsRequest
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.api21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.api32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.api37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.api42_delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.api47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.messages.api69_consumer_group_describe import ConsumerGroupDescribeRequest
from fencepost.protocol.topics import IsolationLevel, TopicPartition

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Admin(TransactionAdmin):
    """Administration; open it with `async with kafka.admin()`.

    Every call retries what is retriable until `default_api_timeout_ms` ends, and raises KafkaError with the broker's
    code otherwise.
    """

    async def __aenter__(self) -> "Admin":
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.release(self._purpose)

    @property
    def cluster(self) -> Cluster:
        """What is known of the cluster; for tools."""
        return self._cluster

    def now_ms(self) -> int:
        """Wall-clock time of this client, in ms since 1970."""
        return round(self._cluster.wall_clock() * 1000)

    # -- topics

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        validate_only: bool = False,
    ) -> bool:
        """Create a topic; -1 takes the broker's default. False when it existed and `if_not_exists` is set."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
                )
            ],
            timeout_ms=self._cluster.config.request_timeout_ms,
            validate_only=validate_only,
        )
        try:
            answer = await self._controller(19, request, lambda value: value.topics, f"creating topic {name!r}")
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                return False
            raise
        if not validate_only:
            await self._cluster.refresh([answer.topics[0].name])
        return True

    async def delete_topic(self, name: str, *, if_exists: bool = False) -> bool:
        """Delete a topic with all its records. False when there was none and `if_exists` is set."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)],
            topic_names=[name],
            timeout_ms=self._cluster.config.request_timeout_ms,
        )
        try:
            await self._controller(
                20, request, lambda value: value.responses, f"deleting topic {name!r}", final={_NO_TOPIC}
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and if_exists:
                return False
            raise
        self._cluster.forget_topic(name)
        return True

    async def create_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's number of partitions to `total`; keys may go elsewhere from then on."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=self._cluster.config.request_timeout_ms,
        )
        what = f"adding partitions to {topic!r}"
        await self._controller(37, request, lambda value: value.results, what, final={_NO_TOPIC})
        await self._cluster.refresh([topic])

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; Kafka's own only if asked for."""
        await self._retry(lambda: self._cluster.refresh(None), "listing topics")
        return sorted(name for name, info in self._cluster.topics.items() if internal or not info.internal)

    async def describe_topics(self, *names: str) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of topics (all, if none is named). Raises KafkaError for an unknown one."""

        async def attempt() -> None:
            for name, code in (await self._cluster.refresh(list(names) or None)).items():
                if names:
                    raise final_error(error_for(code, f"topic {name!r}", api="Metadata"), {_NO_TOPIC})

        await self._retry(attempt, "describing topics")
        known = self._cluster.topics
        return {
            name: TopicDescription(name, known[name].topic_id, known[name].partitions, known[name].internal)
            for name in (names or sorted(known))
        }

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop all records before an offset per partition (-1: up to the high watermark); the new first offsets."""
        found: dict[TopicPartition, int] = {}
        for partition, offset in before.items():
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=partition[0],
                        partitions=[DeleteRecordsPartition(partition_index=partition[1], offset=offset)],
                    )
                ],
                timeout_ms=self._cluster.config.request_timeout_ms,
            )
            answer = await self._leader(partition, 21, request)
            found[TopicPartition(*partition)] = answer.low_watermark
        return found

    # -- offsets

    async def list_offsets(
        self,
        wanted: Collection[TopicPartition] | Mapping[TopicPartition, str | int],
        *,
        at: str | int = "latest",
        isolation: str = "read_committed",
    ) -> dict[TopicPartition, OffsetInfo]:
        """Offsets by "earliest", "latest", "max_timestamp" or a timestamp in ms, one for all (`at`) or per partition.

        "latest" is the last stable offset for read_committed, the high watermark otherwise (row I6).
        """
        level = IsolationLevel[isolation.upper()]
        places = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, at)
        asked = {TopicPartition(*p): _TIMESTAMPS.get(place, place) for p, place in places.items()}
        for partition, place in asked.items():
            if not isinstance(place, int):
                raise KafkaError(f"{partition}: {place!r} is neither a timestamp nor one of {sorted(_TIMESTAMPS)}")
        found = await self._retry(
            lambda: list_offsets(self._cluster, asked, level, self._purpose),  # type: ignore[arg-type]
            "listing offsets",
        )
        return {partition: OffsetInfo(*place) for partition, place in found.items()}

    # -- configurations

    async def configs(self, *, topic: str | None = None, broker: int | None = None) -> dict[str, ConfigEntry]:
        """All settings of one topic or one broker, by name."""
        kind, name, node = _resource(topic, broker)
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)]
        )
        answer = await self._simple(
            32, request, lambda value: value.results, f"settings of {name!r}", node=node, final={_NO_TOPIC}
        )
        return {
            entry.name: ConfigEntry(entry.name, entry.value, entry.config_source, entry.read_only, entry.is_sensitive)
            for entry in answer.results[0].configs
        }

    async def alter_configs(
        self, changes: Mapping[str, str | None], *, topic: str | None = None, broker: int | None = None
    ) -> None:
        """Set settings of one topic or broker; None gives a setting back to its default. Others stay as they are."""
        kind, name, node = _resource(topic, broker)
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
                        for key, value in changes.items()
                    ],
                )
            ]
        )
        what = f"changing settings of {name!r}"
        await self._simple(44, request, lambda value: value.responses, what, node=node, final={_NO_TOPIC})

    # -- groups

    async def list_groups(self, *states: str, kinds: Collection[str] = ()) -> list[GroupListing]:
        """The groups of all brokers; of all states or only these, of all kinds ("classic", "consumer") or only these.

        Raises KafkaError (UNSUPPORTED_VERSION) for a filter that the broker is too old for.
        """
        least = 5 if kinds else 4 if states else 0
        found: dict[str, GroupListing] = {}
        await self._retry(self._cluster.refresh, "finding the brokers")
        for node in sorted(self._cluster.brokers):
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
            entries, what = (lambda value: [value]), "listing groups"
            answer = await self._simple(16, request, entries, what, node=node, at_least=least)
            for group in answer.groups:
                found[group.group_id] = GroupListing(
                    group.group_id, group.protocol_type, group.group_state, group.group_type
                )
        return [found[name] for name in sorted(found)]

    async def describe_group(self, group_id: str) -> GroupDescription:
        """State and members of a group of either protocol; a group that nobody knows has the state "Dead"."""
        request = DescribeGroupsRequest(groups=[group_id])
        answer = await self._coordinator(15, group_id, request, lambda value: value.groups, {_NO_GROUP})
        group = answer.groups[0]
        if group.group_state == "Dead" and (consumers := await self._describe_consumers(group_id)) is not None:
            return consumers
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                tuple(decode_assignment(member.member_assignment)) if group.protocol_type == "consumer" else (),
            )
            for member in group.members
        )
        return GroupDescription(group_id, group.group_state, group.protocol_type, group.protocol_data, members)

    async def _describe_consumers(self, group_id: str) -> GroupDescription | None:
        """A group of the consumer protocol (KIP-848); None where there is none, or the brokers do not know of it."""
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        final = {_NO_GROUP, ErrorCode.UNSUPPORTED_VERSION}
        try:
            answer = await self._coordinator(69, group_id, request, lambda value: value.groups, final)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise
        group = answer.groups[0]
        return None if group.error_code else consumer_group_description(group)

    async def delete_group(self, group_id: str) -> None:
        """Delete an empty group and its offsets. Raises KafkaError (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""
        request = DeleteGroupsRequest(groups_names=[group_id])
        await self._coordinator(42, group_id, request, lambda value: value.results, set())

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget a group's positions in `partitions`, also while it lives; an error per partition (KIP-496).

        GROUP_SUBSCRIBED_TO_TOPIC where its members read the topic, UNSTABLE_OFFSET_COMMIT where an open transaction
        holds a position. Raises KafkaError (GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP where the members are no consumers).
        """
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for name, numbers in by_topic([TopicPartition(*p) for p in partitions]).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        answer = await self._coordinator(47, group_id, request, lambda value: [value], set())
        return {
            TopicPartition(topic.name, one.partition_index): code_of(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }

    async def group_offsets(self, group_id: str, *, stable: bool = True) -> dict[TopicPartition, int]:
        """A group's committed offsets; waits for transactions that hold some, unless not `stable` ones will do."""
        found = await self._retry(
            lambda: fetch_committed(self._cluster, group_id, None, self._purpose, stable=stable),
            f"offsets of group {group_id!r}",
        )
        return {partition: place.offset for partition, place in found.items()}

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set an empty group's offsets. Raises KafkaError (UNKNOWN_MEMBER_ID) while it has members."""
        places = {TopicPartition(*p): CommittedOffset(offset) for p, offset in offsets.items()}
        await self._retry(
            lambda: commit_offsets(self._cluster, GroupMetadata(group_id), places, self._purpose),
            f"setting offsets of group {group_id!r}",
        )

    # -- transactions that are in the way; the rest is in transactions.py

    async def why(self, partition: TopicPartition) -> HeldBack:
        """Why the partition's last stable offset stands where it stands: who holds it, who waits, what to do."""
        from fencepost.client.admin.why import held_back  # here: few programs ask

        return await held_back(self, TopicPartition(*partition))

    async def hanging_transactions(
        self, partitions: Collection[TopicPartition] | None = None, *, older_than_ms: int | None = None
    ) -> list[HangingTransaction]:
        """Transactions that nobody will end, on these partitions or all (row T20).

        `older_than_ms` is by the timestamps of their records; not given, it is `transaction.max.timeout.ms`.
        """
        from fencepost.client.admin.why import find_hanging

        return await find_hanging(self, partitions, older_than_ms)

    # -- features

    async def features(self) -> dict[str, int]:
        """The cluster's finalized features, such as {"transaction.version": 2}."""
        connection = await self._retry(self._cluster.any_connection, "asking for features")
        await connection.negotiate(self._cluster.request_timeout_s)
        return dict(connection.features)

    async def update_feature(self, name: str, level: int, *, downgrade: bool = False) -> None:
        """Finalize a feature at `level`, such as transaction.version 1 or 2; 0 switches it off."""
        key = FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            allow_downgrade=downgrade,
            upgrade_type=SAFE_DOWNGRADE if downgrade else UPGRADE,
        )
        request = UpdateFeaturesRequest(feature_updates=[key], timeout_ms=self._cluster.config.request_timeout_ms)
        await self._controller(57, request, lambda value: [value, *value.results], f"feature {name!r}")


_NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND
_TIMESTAMPS: dict[Any, int] = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": -3}


def _resource(topic: str | None, broker: int | None) -> tuple[int, str, int | None]:
    if (topic is None) == (broker is None):
        raise KafkaError("name either a topic or a broker")
    return (TOPIC, topic, None) if topic is not None else (BROKER, str(broker), broker)
