"""The admin client as a whole."""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel

from fencepost.client.admin.cluster import ClusterAdmin
from fencepost.client.admin.configs import ConfigAdmin
from fencepost.client.admin.groups import GroupAdmin
from fencepost.client.admin.offsets import OffsetAdmin
from fencepost.client.admin.parts import AdminParts
from fencepost.client.admin.plan_types import Applied, ClusterPlan
from fencepost.client.admin.replicas import ReplicaAdmin
from fencepost.client.admin.requests import listed
from fencepost.client.admin.security import SecurityAdmin
from fencepost.client.admin.share_groups import ShareGroupAdmin
from fencepost.client.admin.topics import TopicAdmin
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.admin.types import HangingTransaction, LastStableOffsetInfo
from fencepost.client.facade import delegate
from fencepost.client.keywords import Duration
from fencepost.client.network.cluster import Cluster
from fencepost.client.options import milliseconds
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.admin.lag import PartitionLag


class Admin:
    """The admin client; open it with `async with kafka.admin()`. Methods have the names of Kafka's Admin.

    Each request goes to the broker that is responsible for its subject. The client repeats requests that fail with a
    retriable error until `default_api_timeout` ends. An argument that names things takes one of them or several. A
    method that can name several things raises ItemsFailedError, which has one error for each thing that failed and the
    results of the others. Other methods raise KafkaError with the broker's code. FatalError (UNSUPPORTED_VERSION) means
    that the broker does not support the request.
    """

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        self._cluster = cluster
        self._purpose = purpose
        self._parts = AdminParts(cluster, purpose)

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.release(self._purpose)

    def __repr__(self) -> str:
        return f"<Admin for {self._cluster.config.servers}>"

    create_topics = delegate("_parts.topics", TopicAdmin.create_topics)
    delete_topics = delegate("_parts.topics", TopicAdmin.delete_topics)
    create_partitions = delegate("_parts.topics", TopicAdmin.create_partitions)
    list_topics = delegate("_parts.topics", TopicAdmin.list_topics)
    describe_topics = delegate("_parts.topics", TopicAdmin.describe_topics)

    list_offsets = delegate("_parts.offsets", OffsetAdmin.list_offsets)
    delete_records = delegate("_parts.offsets", OffsetAdmin.delete_records)

    describe_configs = delegate("_parts.configs", ConfigAdmin.describe_configs)
    incremental_alter_configs = delegate("_parts.configs", ConfigAdmin.incremental_alter_configs)
    list_config_resources = delegate("_parts.configs", ConfigAdmin.list_config_resources)

    list_groups = delegate("_parts.groups", GroupAdmin.list_groups)
    describe_groups = delegate("_parts.groups", GroupAdmin.describe_groups)
    delete_groups = delegate("_parts.groups", GroupAdmin.delete_groups)
    remove_members = delegate("_parts.groups", GroupAdmin.remove_members)
    list_group_offsets = delegate("_parts.groups", GroupAdmin.list_group_offsets)
    alter_group_offsets = delegate("_parts.groups", GroupAdmin.alter_group_offsets)
    delete_group_offsets = delegate("_parts.groups", GroupAdmin.delete_group_offsets)

    describe_share_groups = delegate("_parts.share_groups", ShareGroupAdmin.describe_share_groups)
    list_share_group_offsets = delegate("_parts.share_groups", ShareGroupAdmin.list_share_group_offsets)
    alter_share_group_offsets = delegate("_parts.share_groups", ShareGroupAdmin.alter_share_group_offsets)
    delete_share_group_offsets = delegate("_parts.share_groups", ShareGroupAdmin.delete_share_group_offsets)

    list_transactions = delegate("_parts.transactions", TransactionAdmin.list_transactions)
    describe_transactions = delegate("_parts.transactions", TransactionAdmin.describe_transactions)
    describe_producers = delegate("_parts.transactions", TransactionAdmin.describe_producers)
    fence_producers = delegate("_parts.transactions", TransactionAdmin.fence_producers)
    abort_transaction = delegate("_parts.transactions", TransactionAdmin.abort_transaction)

    describe_cluster = delegate("_parts.brokers", ClusterAdmin.describe_cluster)
    describe_quorum = delegate("_parts.brokers", ClusterAdmin.describe_quorum)
    describe_features = delegate("_parts.brokers", ClusterAdmin.describe_features)
    update_features = delegate("_parts.brokers", ClusterAdmin.update_features)
    describe_log_dirs = delegate("_parts.brokers", ClusterAdmin.describe_log_dirs)
    alter_replica_log_dirs = delegate("_parts.brokers", ClusterAdmin.alter_replica_log_dirs)

    elect_leaders = delegate("_parts.replicas", ReplicaAdmin.elect_leaders)
    list_partition_reassignments = delegate("_parts.replicas", ReplicaAdmin.list_partition_reassignments)
    alter_partition_reassignments = delegate("_parts.replicas", ReplicaAdmin.alter_partition_reassignments)

    describe_acls = delegate("_parts.security", SecurityAdmin.describe_acls)
    create_acls = delegate("_parts.security", SecurityAdmin.create_acls)
    delete_acls = delegate("_parts.security", SecurityAdmin.delete_acls)
    describe_client_quotas = delegate("_parts.security", SecurityAdmin.describe_client_quotas)
    alter_client_quotas = delegate("_parts.security", SecurityAdmin.alter_client_quotas)
    describe_user_scram_credentials = delegate("_parts.security", SecurityAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = delegate("_parts.security", SecurityAdmin.alter_user_scram_credentials)

    async def apply(self, plan: ClusterPlan, *, validate_only: bool = False, atomic: bool = True) -> Applied:
        """Change topics, settings and access rules to what a plan wants: all as one metadata transaction, or nothing.

        No reader ever sees a part of the change, also after a crash (KIP-868); it is durable when this returns. A
        second call with the same plan changes nothing. `validate_only` only reports what would change.

        Only a fencepost broker applies a plan as a whole. With `atomic` False, the client sends one request for each
        change, to any Kafka: it validates all changes first, but a later error leaves earlier changes done. Raises
        ItemsFailedError by "topic NAME", "broker ID", "group NAME" or "acl ..."; FatalError (UNSUPPORTED_VERSION) if
        the broker does not support `atomic`.
        """
        if atomic:
            return await self._parts.plans.apply_at_once(plan, validate_only)
        from fencepost.client.admin.plan_steps import apply_by_steps  # here: only other brokers need it

        return await apply_by_steps(self._parts, plan, validate_only)

    async def describe_group_lag(self, group_id: str, *, count_bytes: int = 32 << 20) -> "list[PartitionLag]":
        """The lag of a group by partition, in records that a read_committed consumer will get.

        To count them, the client reads up to `count_bytes` of the logs; it counts the remaining part by offsets.
        Raises KafkaError.
        """
        from fencepost.client.admin.lag import describe_group_lag  # here: few programs ask

        return await describe_group_lag(self._parts, group_id, count_bytes=count_bytes)

    async def describe_last_stable_offset(self, partition: TopicPartition) -> LastStableOffsetInfo:
        """The partition's last stable offset, the open transactions that hold it, and the groups that wait for it.

        Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION, ...).
        """
        from fencepost.client.admin.last_stable_offset import describe_last_stable_offset  # here: few programs ask

        return await describe_last_stable_offset(self._parts, TopicPartition(*partition))

    async def find_hanging_transactions(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None = None, *, older_than: Duration | None = None
    ) -> list[HangingTransaction]:
        """The open transactions that no coordinator will end, in these partitions or in all (row T20).

        `older_than` (seconds, or a timedelta) is the least age by the timestamps of their records; the default is the
        broker's `transaction.max.timeout.ms`. Raises KafkaError.
        """
        from fencepost.client.admin.last_stable_offset import find_hanging

        places = None if partitions is None else listed(partitions, TopicPartition)
        return await find_hanging(self._parts, places, None if older_than is None else milliseconds(older_than))


def parts_of(admin: Admin) -> AdminParts:
    return admin._parts
