"""The cluster: brokers, features, the metadata quorum and log directories."""

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.client.admin.cluster_types import (
    BrokerInfo,
    ClusterDescription,
    FeatureLevels,
    LogDir,
    QuorumDescription,
    QuorumReplica,
    ReplicaSize,
)
from fencepost.client.admin.requests import AdminRequests, ToBroker, failure, is_unsupported, listed
from fencepost.client.errors import KafkaError, code_of
from fencepost.client.group.requests import by_topic
from fencepost.protocol.admin_enums import UpgradeType
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from fencepost.protocol.messages.api35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from fencepost.protocol.messages.api55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.messages.api60_describe_cluster import DescribeClusterRequest
from fencepost.protocol.topics import METADATA_TOPIC, TopicPartition

_FENCED_SINCE, _FEATURES_SINCE, _VALIDATE_SINCE = 2, 3, 1


class ClusterAdmin:
    """The part of the admin client for brokers and the cluster as a whole."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """The cluster's id, its controller and its brokers; with `include_fenced` (Kafka 4.0) also fenced brokers.

        Raises KafkaError.
        """
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced)

        async def ask(node: int | None) -> ClusterDescription | KafkaError:
            try:
                response = await self._rpc.ask(node, request, at_least=_FENCED_SINCE if include_fenced else 0)
            except KafkaError as too_old:
                if include_fenced or not is_unsupported(too_old):
                    raise
                return await self._cluster_by_metadata(node)
            error = failure(response, "describing the cluster", ApiKey.DESCRIBE_CLUSTER, node)
            brokers = (BrokerInfo(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in response.brokers)
            return error or ClusterDescription(response.cluster_id, response.controller_id, tuple(sorted(brokers)))

        return await self._rpc.one("", self._rpc.any_broker, ask, "describing the cluster")

    async def _cluster_by_metadata(self, node: int | None) -> ClusterDescription:
        """The same of brokers before KIP-700 (Kafka 2.8)."""
        response = await self._rpc.ask(node, MetadataRequest(topics=[]), at_least=2)
        brokers = (BrokerInfo(b.node_id, b.host, b.port, b.rack) for b in response.brokers)
        return ClusterDescription(response.cluster_id, response.controller_id, tuple(sorted(brokers)))

    async def describe_quorum(self) -> QuorumDescription:
        """Leader, voters and observers of the metadata quorum (Kafka 3.3, KRaft only). Raises KafkaError."""
        topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
        request = DescribeQuorumRequest(topics=[topic])
        quorum = await self._rpc.response(
            "",
            self._rpc.any_broker,
            request,
            "describing the quorum",
            lambda response: response if response.error_code else response.topics[0].partitions[0],
        )
        return QuorumDescription(
            quorum.leader_id,
            quorum.leader_epoch,
            quorum.high_watermark,
            tuple(_replica(one) for one in quorum.current_voters),
            tuple(_replica(one) for one in quorum.observers),
        )

    async def describe_features(self) -> FeatureLevels:
        """The cluster's finalized features ({"transaction.version": 2}, ...) and those that one broker supports.

        Both are empty before Kafka 2.7. Raises KafkaError.
        """
        request = ApiVersionsRequest(client_software_name="fencepost", client_software_version="admin")

        async def ask(node: int | None) -> FeatureLevels | KafkaError:
            try:
                response = await self._rpc.ask(node, request, at_least=_FEATURES_SINCE)
            except KafkaError as too_old:
                if not is_unsupported(too_old):
                    raise
                return FeatureLevels({}, {}, None)
            error = failure(response, "asking for features", ApiKey.API_VERSIONS, node)
            return error or FeatureLevels(
                {one.name: one.max_version_level for one in response.finalized_features},
                {one.name: (one.min_version, one.max_version) for one in response.supported_features},
                response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
            )

        return await self._rpc.one("", self._rpc.any_broker, ask, "asking for features")

    async def update_features(
        self, levels: Mapping[str, int], *, downgrade: bool = False, unsafe: bool = False, validate_only: bool = False
    ) -> None:
        """Finalize features at these levels: {"transaction.version": 2}; 0 disables a feature. All of them, or none.

        A level below the present one needs `downgrade`, one that loses metadata `unsafe` (Kafka 3.3). Raises KafkaError
        (INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED, ...).
        """
        way = UpgradeType.UPGRADE
        if downgrade or unsafe:
            way = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
        updates = [
            FeatureUpdateKey(
                feature=name, max_version_level=level, allow_downgrade=downgrade or unsafe, upgrade_type=way
            )
            for name, level in levels.items()
        ]
        request = UpdateFeaturesRequest(
            feature_updates=updates, timeout_ms=self._rpc.timeout_ms, validate_only=validate_only
        )
        what = f"updating {', '.join(levels)}"
        least = _VALIDATE_SINCE if validate_only or unsafe else 0

        async def ask(node: int | None) -> KafkaError | None:
            response = await self._rpc.ask(node, request, at_least=least)
            for one in [response, *response.results]:
                error = failure(one, what, ApiKey.UPDATE_FEATURES, node)
                if error is not None:
                    return error
            return None

        await self._rpc.one("", self._rpc.controller, ask, what)

    async def describe_log_dirs(
        self,
        brokers: int | Iterable[int] | None = None,
        *,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
    ) -> dict[int, tuple[LogDir, ...]]:
        """The log directories of these brokers or of all, by broker, with the replicas in them.

        `partitions` selects some of the replicas. An offline directory has `error`. Raises ItemsFailedError by broker.
        """
        if brokers is None:
            brokers = [one.broker_id for one in (await self.describe_cluster()).brokers]
        topics = None
        if partitions is not None:
            wanted = by_topic(listed(partitions, TopicPartition))
            topics = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in wanted.items()]
        request = DescribeLogDirsRequest(topics=topics)

        async def ask(node: int | None, some: list[int]) -> dict[int, tuple[LogDir, ...] | KafkaError]:
            response = await self._rpc.ask(node, request)
            error = failure(response, f"describing directories of broker {node}", ApiKey.DESCRIBE_LOG_DIRS, node)
            return {some[0]: error or tuple(_log_dir(one) for one in response.results)}

        return await self._rpc.each(listed(brokers, int), _Itself(self._rpc.cluster), ask, "describing directories")

    async def alter_replica_log_dirs(self, broker: int, paths: Mapping[TopicPartition, str]) -> None:
        """Move a broker's replicas to other log directories, by absolute path. Returns when the moves have begun.

        Raises ItemsFailedError by partition (LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, ...).
        """
        asked = {TopicPartition(*partition): path for partition, path in paths.items()}

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            by_path: dict[str, dict[str, list[int]]] = {}
            for partition in some:
                by_path.setdefault(asked[partition], {}).setdefault(partition.topic, []).append(partition.partition)
            dirs = [
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
                )
                for path, topics in by_path.items()
            ]
            response = await self._rpc.ask(node, AlterReplicaLogDirsRequest(dirs=dirs))
            return {
                TopicPartition(topic.topic_name, one.partition_index): failure(
                    one,
                    f"moving {topic.topic_name}-{one.partition_index}",
                    ApiKey.ALTER_REPLICA_LOG_DIRS,
                    node,
                    final={ErrorCode.KAFKA_STORAGE_ERROR},
                )
                for topic in response.results
                for one in topic.partitions
            }

        await self._rpc.each(asked, ToBroker(self._rpc.cluster, broker), ask, f"moving replicas of broker {broker}")


class _Itself(ToBroker):
    """Items that are brokers."""

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster, -1)

    async def node(self, item: Any) -> int | None:
        return int(item)


def _replica(one: Any) -> QuorumReplica:
    fetched, caught_up = one.last_fetch_timestamp, one.last_caught_up_timestamp
    return QuorumReplica(
        one.replica_id,
        one.replica_directory_id,
        one.log_end_offset,
        fetched if fetched >= 0 else None,
        caught_up if caught_up >= 0 else None,
    )


def _log_dir(one: Any) -> LogDir:
    replicas = {
        TopicPartition(topic.name, p.partition_index): ReplicaSize(p.partition_size, p.offset_lag, p.is_future_key)
        for topic in one.topics
        for p in topic.partitions
    }
    error = code_of(one.error_code)
    return LogDir(one.log_dir, None if error is ErrorCode.NONE else error, replicas, one.total_bytes, one.usable_bytes)
