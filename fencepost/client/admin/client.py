"""The admin client as a whole."""

from collections.abc import Collection
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from fencepost.client.admin.cluster import ClusterAdmin
from fencepost.client.admin.configs import ConfigAdmin
from fencepost.client.admin.groups import GroupAdmin
from fencepost.client.admin.offsets import OffsetAdmin
from fencepost.client.admin.parts import AdminParts
from fencepost.client.admin.plan_types import Applied, ClusterPlan
from fencepost.client.admin.replicas import ReplicaAdmin
from fencepost.client.admin.security import SecurityAdmin
from fencepost.client.admin.topics import TopicAdmin
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.admin.types import HangingTransaction, HeldBack
from fencepost.client.facade import delegate
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.admin.lag import PartitionLag


class Admin:
    """Administration; open it with `async with kafka.admin()`.

    Every call goes to the broker that answers for its subject, and retries what is retriable until
    `default_api_timeout` ends. A call that names one thing raises KafkaError with the broker's code; one that can
    name several raises ItemsFailedError, which has an error for each that failed and the results of the others. What a
    broker is too old for raises FatalError (UNSUPPORTED_VERSION).
    """

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        self._cluster = cluster
        self._purpose = purpose
        self._parts = AdminParts(cluster, purpose)

    async def __aenter__(self) -> "Admin":
        await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.release(self._purpose)

    def __repr__(self) -> str:
        return f"<Admin for {self._cluster.config.servers}>"

    @property
    def cluster(self) -> Cluster:
        """What is known of the cluster; for tools."""
        return self._cluster

    now_ms = delegate("_parts", AdminParts.now_ms)

    create_topic = delegate("_parts.topics", TopicAdmin.create_topic)
    create_topics = delegate("_parts.topics", TopicAdmin.create_topics)
    delete_topic = delegate("_parts.topics", TopicAdmin.delete_topic)
    delete_topics = delegate("_parts.topics", TopicAdmin.delete_topics)
    create_partitions = delegate("_parts.topics", TopicAdmin.create_partitions)
    list_topics = delegate("_parts.topics", TopicAdmin.list_topics)
    describe_topics = delegate("_parts.topics", TopicAdmin.describe_topics)

    list_offsets = delegate("_parts.offsets", OffsetAdmin.list_offsets)
    delete_records = delegate("_parts.offsets", OffsetAdmin.delete_records)

    configs = delegate("_parts.configs", ConfigAdmin.configs)
    alter_configs = delegate("_parts.configs", ConfigAdmin.alter_configs)
    list_config_resources = delegate("_parts.configs", ConfigAdmin.list_config_resources)

    list_groups = delegate("_parts.groups", GroupAdmin.list_groups)
    describe_group = delegate("_parts.groups", GroupAdmin.describe_group)
    describe_groups = delegate("_parts.groups", GroupAdmin.describe_groups)
    delete_group = delegate("_parts.groups", GroupAdmin.delete_group)
    delete_groups = delegate("_parts.groups", GroupAdmin.delete_groups)
    remove_members = delegate("_parts.groups", GroupAdmin.remove_members)
    group_offsets = delegate("_parts.groups", GroupAdmin.group_offsets)
    committed_offsets = delegate("_parts.groups", GroupAdmin.committed_offsets)
    alter_group_offsets = delegate("_parts.groups", GroupAdmin.alter_group_offsets)
    delete_group_offsets = delegate("_parts.groups", GroupAdmin.delete_group_offsets)

    list_transactions = delegate("_parts.transactions", TransactionAdmin.list_transactions)
    transactions = delegate("_parts.transactions", TransactionAdmin.transactions)
    describe_transaction = delegate("_parts.transactions", TransactionAdmin.describe_transaction)
    describe_producers = delegate("_parts.transactions", TransactionAdmin.describe_producers)
    fence_producer = delegate("_parts.transactions", TransactionAdmin.fence_producer)
    abort_open = delegate("_parts.transactions", TransactionAdmin.abort_open)

    describe_cluster = delegate("_parts.brokers", ClusterAdmin.describe_cluster)
    describe_quorum = delegate("_parts.brokers", ClusterAdmin.describe_quorum)
    features = delegate("_parts.brokers", ClusterAdmin.features)
    describe_features = delegate("_parts.brokers", ClusterAdmin.describe_features)
    update_feature = delegate("_parts.brokers", ClusterAdmin.update_feature)
    describe_log_dirs = delegate("_parts.brokers", ClusterAdmin.describe_log_dirs)
    alter_replica_log_dirs = delegate("_parts.brokers", ClusterAdmin.alter_replica_log_dirs)

    elect_leaders = delegate("_parts.replicas", ReplicaAdmin.elect_leaders)
    list_reassignments = delegate("_parts.replicas", ReplicaAdmin.list_reassignments)
    alter_reassignments = delegate("_parts.replicas", ReplicaAdmin.alter_reassignments)

    describe_acls = delegate("_parts.security", SecurityAdmin.describe_acls)
    create_acls = delegate("_parts.security", SecurityAdmin.create_acls)
    delete_acls = delegate("_parts.security", SecurityAdmin.delete_acls)
    describe_client_quotas = delegate("_parts.security", SecurityAdmin.describe_client_quotas)
    alter_client_quotas = delegate("_parts.security", SecurityAdmin.alter_client_quotas)
    describe_user_scram_credentials = delegate("_parts.security", SecurityAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = delegate("_parts.security", SecurityAdmin.alter_user_scram_credentials)

    async def apply(self, plan: ClusterPlan, *, validate_only: bool = False, atomic: bool = True) -> Applied:
        """Make topics, settings and access rules as a plan says: all as one change of the metadata, or nothing.

        Nobody ever sees a part of it, whatever crashes in between (KIP-868); the answer leaves when it is durable. What
        is already as it shall be is not touched, so it does no harm to apply a plan twice. With `validate_only` nothing
        is changed, and the answer is what would be.

        Only a fencepost broker can do it at once. With `atomic` False any Kafka is asked thing by thing: each is
        checked before the first is changed, but an error in between leaves a part done. Raises ItemsFailedError by
        "topic NAME", "broker ID", "group NAME" or "acl ..."; FatalError (UNSUPPORTED_VERSION) where `atomic` cannot be.
        """
        if atomic:
            return await self._parts.plans.apply_at_once(plan, validate_only)
        from fencepost.client.admin.plan_steps import apply_by_steps  # here: only other brokers need it

        return await apply_by_steps(self._parts, plan, validate_only)

    async def group_lag(self, group_id: str, *, count_bytes: int = 32 << 20) -> "list[PartitionLag]":
        """What a group has still to read, by partition, counted in records that a read_committed reader will get.

        Counting means to read what lies between: at most `count_bytes`, 0 reads nothing; where that does not suffice,
        offsets are counted instead. Raises KafkaError.
        """
        from fencepost.client.admin.lag import group_lag  # here: few programs ask

        return await group_lag(self._parts, group_id, count_bytes=count_bytes)

    async def why(self, partition: TopicPartition) -> HeldBack:
        """Why the partition's last stable offset stands where it stands: who holds it, who waits, what to do.

        Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION, ...).
        """
        from fencepost.client.admin.why import held_back  # here: few programs ask

        return await held_back(self._parts, TopicPartition(*partition))

    async def hanging_transactions(
        self, partitions: Collection[TopicPartition] | None = None, *, older_than_ms: int | None = None
    ) -> list[HangingTransaction]:
        """Transactions that nobody will end, on these partitions or all (row T20).

        `older_than_ms` is by the timestamps of their records; not given, it is `transaction.max.timeout.ms`. Raises
        KafkaError.
        """
        from fencepost.client.admin.why import find_hanging

        return await find_hanging(self._parts, partitions, older_than_ms)


def parts_of(admin: Admin) -> AdminParts:
    """The parts of an admin client, for what works on several of them."""
    return admin._parts
