"""The admin client as a whole."""

from collections.abc import Collection
from types import TracebackType

import trio

from fencepost.client.admin.cluster import ClusterAdmin
from fencepost.client.admin.configs import ConfigAdmin
from fencepost.client.admin.groups import GroupAdmin
from fencepost.client.admin.offsets import OffsetAdmin
from fencepost.client.admin.replicas import ReplicaAdmin
from fencepost.client.admin.security import SecurityAdmin
from fencepost.client.admin.topics import TopicAdmin
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.admin.types import HangingTransaction, HeldBack
from fencepost.protocol.topics import TopicPartition


class Admin(
    TopicAdmin, OffsetAdmin, ConfigAdmin, GroupAdmin, TransactionAdmin, ClusterAdmin, ReplicaAdmin, SecurityAdmin
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
