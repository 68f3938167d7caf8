"""The admin client as a whole."""

from collections.abc import Collection
from types import TracebackType

import trio

from fencepost.client.admin.cluster import ClusterAdmin
from fencepost.client.admin.configs import ConfigAdmin
from fencepost.client.admin.groups import GroupAdmin
from fencepost.client.admin.offsets import OffsetAdmin
from fencepost.client.admin.plan_types import Applied, ClusterPlan
from fencepost.client.admin.plans import PlanAdmin
from fencepost.client.admin.replicas import ReplicaAdmin
from fencepost.client.admin.security import SecurityAdmin
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.admin.types import HangingTransaction, HeldBack
from fencepost.protocol.topics import TopicPartition


class Admin(
    PlanAdmin, OffsetAdmin, ConfigAdmin, GroupAdmin, TransactionAdmin, ClusterAdmin, ReplicaAdmin, SecurityAdmin
):
    """Administration; open it with `async with kafka.admin()`.

    Every call goes to the broker that answers for its subject, and retries what is retriable until
    `default_api_timeout_ms` ends. A call that names one thing raises KafkaError with the broker's code; one that can
    name several raises ItemErrors, which has an error for each that failed and the results of the others. What a
    broker is too old for raises FatalError (UNSUPPORTED_VERSION).
    """

    async def __aenter__(self) -> "Admin":
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.release(self._purpose)

    def now_ms(self) -> int:
        """Wall-clock time of this client, in ms since 1970."""
        return round(self._cluster.wall_clock() * 1000)

    async def apply(self, plan: ClusterPlan, *, validate_only: bool = False, atomic: bool = True) -> Applied:
        """Make topics, settings and access rules as a plan says: all as one change of the metadata, or nothing.

        Nobody ever sees a part of it, whatever crashes in between (KIP-868); the answer leaves when it is durable. What
        is already as it shall be is not touched, so it does no harm to apply a plan twice. With `validate_only` nothing
        is changed, and the answer is what would be.

        Only a fencepost broker can do it at once. With `atomic` False any Kafka is asked thing by thing: each is
        checked before the first is changed, but an error in between leaves a part done. Raises ItemErrors by "topic
        NAME", "broker ID", "group NAME" or "acl ..."; FatalError (UNSUPPORTED_VERSION) where `atomic` can not be.
        """
        if atomic:
            return await self._apply_at_once(plan, validate_only)
        from fencepost.client.admin.plan_steps import apply_by_steps  # here: only other brokers need it

        return await apply_by_steps(self, plan, validate_only)

    # -- transactions that are in the way; the rest is in transactions.py

    async def why(self, partition: TopicPartition) -> HeldBack:
        """Why the partition's last stable offset stands where it stands: who holds it, who waits, what to do.

        Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION, ...).
        """
        from fencepost.client.admin.why import held_back  # here: few programs ask

        return await held_back(self, TopicPartition(*partition))

    async def hanging_transactions(
        self, partitions: Collection[TopicPartition] | None = None, *, older_than_ms: int | None = None
    ) -> list[HangingTransaction]:
        """Transactions that nobody will end, on these partitions or all (row T20).

        `older_than_ms` is by the timestamps of their records; not given, it is `transaction.max.timeout.ms`. Raises
        KafkaError.
        """
        from fencepost.client.admin.why import find_hanging

        return await find_hanging(self, partitions, older_than_ms)
