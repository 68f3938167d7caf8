"""A consumer's commits: on the program's call, at intervals (auto-commit), and in transactions."""

import logging
from collections.abc import Collection, Mapping
from itertools import count

import anyio

from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.consumer.positions import Positions
from fencepost.client.consumer.progress import Progress
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata, offsets_to_commit
from fencepost.client.errors import STALE_MEMBER, AbortableError, FatalError, KafkaError, RetriableError
from fencepost.client.group.group_client import GroupClient
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)
MOMENTS = count(1)
"""Numbers the begins of transactions and the losses of partitions in order."""


class Committer:
    """The part of a consumer that commits to its group."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        group: GroupClient,
        fetcher: Fetcher,
        progress: Progress,
        positions: Positions,
    ) -> None:
        self._policy = cluster.policy
        self._interval_s = config.auto_commit_interval_ms / 1000
        self._group = group
        self._fetcher = fetcher
        self.progress = progress
        self.positions = positions
        self._lost_at = 0
        self._committed_at = 0.0

    # -- for programs

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets (of the assigned partitions, if none is named); None where there is none."""
        found = await self.committed_offsets(*partitions)
        return {partition: None if place is None else place.offset for partition, place in found.items()}

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, CommittedOffset | None]:
        """As `committed`, with the leader epoch and the metadata that were committed with each offset."""
        wanted = list(partitions or self._fetcher.states)
        found = await self._policy.run(lambda: self._group.fetch_committed(wanted), what="committed offsets")
        return {partition: found.get(partition) for partition in wanted}

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit the positions (or `offsets`, each the next one to read) of this member, outside of transactions.

        Positions are those after the records in hand, after a `seek`, or where reading began, as in Kafka's own client.
        Returns when they are committed. During a rebalance this waits, as long as this member keeps the partitions; a
        CommittedOffset may have metadata. Raises ValueError for a negative offset, KafkaError (ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH) when the group has assigned the partitions to others, FencedError for a
        static member with a successor, RetriableError at the deadline (`default_api_timeout`).
        """
        if offsets is None:
            await self.positions.wait_found()
            _, wanted = self.offsets_in_hand()
        else:
            wanted = offsets_to_commit(offsets)
        if wanted:
            await self._commit(wanted)

    async def _commit(
        self, offsets: dict[TopicPartition, CommittedOffset], *, deadline_ms: float | None = None
    ) -> None:
        began = anyio.current_time()
        states = self._fetcher.states
        held = {partition: states[partition] for partition in offsets if partition in states}

        async def attempt() -> None:
            if any(self._fetcher.states.get(partition) is not state for partition, state in held.items()):
                raise KafkaError(
                    "the group has revoked partitions of this commit",
                    code=ErrorCode.ILLEGAL_GENERATION,
                    api="OffsetCommit",
                )
            group = self._group.metadata()
            if self._group.membership is not None and not self._group.membership.is_member:
                raise RetriableError("this consumer is joining its group", code=ErrorCode.REBALANCE_IN_PROGRESS)
            try:
                await self._group.commit(group, offsets)
            except KafkaError as error:
                raise self._after_rejection(group, error) from error

        with self.begin_commit({partition: place.offset for partition, place in offsets.items()}) as pending_commit:
            await self._policy.run(attempt, deadline_ms=deadline_ms, what="committing offsets")
            self._fetcher.metrics.committed(anyio.current_time() - began)
            pending_commit.keep()

    def _after_rejection(self, group: GroupMetadata, error: KafkaError) -> KafkaError:
        """The error for a rejected commit: its member or generation may be old, or about to change."""
        membership = self._group.membership
        if membership is None or error.code not in STALE_MEMBER:
            return error
        again = error.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH)
        if again or membership.is_rejoining or (membership.is_member and membership.metadata != group):
            return RetriableError(str(error.args[0]), code=error.code, api=error.api, node=error.node)
        membership.commit_rejected(group, error.code)
        return error

    # -- with enable_auto_commit

    async def auto_commit(
        self, offsets: dict[TopicPartition, CommittedOffset], *, deadline_ms: float | None = None
    ) -> None:
        """Commit processed records. A failure is only logged: the records may be read again."""
        if not offsets:
            return
        try:
            await self._commit(offsets, deadline_ms=deadline_ms)
        except FatalError as error:
            self._fetcher.fail(error)
        except KafkaError as error:
            name = self._group.group_id
            logger.warning("group %s: committing offsets failed, so their records may be read again: %s", name, error)

    async def commit_if_due(self) -> None:
        """Commit processed records, once in `auto_commit_interval`."""
        now = anyio.current_time()
        if now - self._committed_at >= self._interval_s:
            self._committed_at = now
            await self.auto_commit(self.progress.uncommitted())

    def begin(self) -> None:
        self._committed_at = anyio.current_time()

    async def run(self) -> None:
        """Commit processed records while the program waits for more; ends when cancelled."""
        while True:
            await anyio.sleep(max(self._committed_at + self._interval_s - anyio.current_time(), self._interval_s / 2))
            if self.progress.resting:
                await self.commit_if_due()

    # -- for transactions

    def offsets_in_hand(self) -> tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]:
        """Group and member of this consumer, and its uncommitted positions.

        Raises AbortableError when the group has assigned partitions of the batch in hand to others.
        """
        progress = self.progress
        if progress.void:
            raise RuntimeError("the last commit's outcome is unknown: do not retry its records, read them again")
        if progress.lost:
            raise AbortableError(
                "the group has revoked partitions of this batch", code=ErrorCode.ILLEGAL_GENERATION, api="Heartbeat"
            )
        units = progress.units
        return self._group.metadata(), units.offsets() if units is not None else progress.uncommitted()

    def note_loss(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions go. Their next owner reads their uncommitted records again."""
        units = self.progress.units
        states = [state for p in partitions if (state := self._fetcher.states.get(p)) is not None]
        if units.given if units is not None else any(state.back.has_uncommitted(state.position) for state in states):
            self._lost_at = next(MOMENTS)

    def check_offsets(self, since: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Raise AbortableError if `offsets` must not become part of a transaction that began at `since`.

        That is so if the group has removed this member: the group does not check a commit without a member id
        (KIP-447). It is also so if partitions with uncommitted records were revoked: the transaction may depend on
        these records without their offsets, and their next owner reads them again.
        """
        if self._lost_at > since:
            raise AbortableError(
                "the group has revoked partitions with uncommitted records since the transaction began",
                code=ErrorCode.ILLEGAL_GENERATION,
                api="Heartbeat",
            )
        if offsets and self._group.membership is not None and not self._group.membership.is_member:
            raise AbortableError(
                "this consumer is not a member of its group now", code=ErrorCode.UNKNOWN_MEMBER_ID, api="Heartbeat"
            )

    def begin_commit(self, offsets: Mapping[TopicPartition, int]) -> "PendingCommit":
        return PendingCommit(self._fetcher, self.progress, offsets)


class PendingCommit:
    """Offsets of a commit under way. After `keep` they are committed, and an abort rewinds no further.

    A seek of the program since they were taken stays: it came later, whenever the response arrives. Used as a context,
    the pending_commit is dropped at the end unless it was kept.
    """

    def __init__(self, fetcher: Fetcher, progress: Progress, offsets: Mapping[TopicPartition, int]) -> None:
        self._progress = progress
        self._offsets = dict(offsets)
        held = {partition: state for partition, state in fetcher.states.items() if partition in offsets}
        self._pending = [(state, state.back.begin_commit(offsets[p]), state.seeks) for p, state in held.items()]

    def __enter__(self) -> "PendingCommit":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """They may not be committed. Does nothing after `keep`, or a second time."""
        for state, point, _ in self._pending:
            state.back.drop(point)
        self._pending.clear()

    def keep(self) -> None:
        progress = self._progress
        if progress.units is not None:
            progress.units.committed()
        handled = progress.handled
        for state, point, seeks in self._pending:
            partition, offset = state.partition, self._offsets[state.partition]
            state.back.keep(point)
            state.committed = offset
            done = handled.get(partition)
            if progress.tracks_handled and state.seeks == seeks and (done is None or done.offset < offset):
                handled[partition] = CommittedOffset(offset)
        self._pending.clear()
