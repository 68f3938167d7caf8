"""A consumer's requests to its group: commit offsets as a member, and fetch committed ones."""

from typing import Any

from fencepost.client.config import ConsumerConfig
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.client.errors import KafkaError
from fencepost.client.group.membership import Membership
from fencepost.client.group.requests import commit_offsets, fetch_committed
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class GroupClient:
    """One consumer's group. `membership` is None without a subscription, and with `assign`."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, purpose: str) -> None:
        self._cluster = cluster
        self._names_member = config.group_protocol == "consumer"
        self._purpose = purpose
        self.group_id = config.group_id
        self.membership: Membership[Any] | None = None

    def metadata(self) -> GroupMetadata:
        """Group, generation and member. Raises KafkaError (INVALID_GROUP_ID) for a consumer without a group."""
        if self.group_id is None:
            raise KafkaError("this consumer has no group", code=ErrorCode.INVALID_GROUP_ID)
        return self.membership.metadata if self.membership is not None else GroupMetadata(self.group_id)

    async def fetch_committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """One attempt to fetch committed offsets; a partition without one is missing. Raises KafkaError."""
        group = self.metadata()
        member = group if self._names_member else None
        return await fetch_committed(self._cluster, group.group_id, partitions, self._purpose, member=member)

    async def commit(self, group: GroupMetadata, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """One attempt to commit offsets as the member in `group`. Raises KafkaError."""
        await commit_offsets(self._cluster, group, offsets, self._purpose)

    async def wait_for_revocation(self) -> None:
        """Wait while the group revokes partitions, so that `on_revoked` commits only processed records."""
        if self.membership is not None:
            await self.membership.wait_for_revocation()
