"""What a consumer commits: by itself, when it is told, and in transactions; and going back after one that aborted."""

import logging
from collections.abc import Collection, Mapping

import trio

from fencepost.client.consumer.positions import Positions
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.client.errors import STALE_MEMBER, AbortableError, FatalError, KafkaError, RetriableError
from fencepost.client.group.requests import commit_offsets
from fencepost.client.transactions.requests import MOMENTS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


class Committing(Positions):
    """The part of a consumer that tells its group how far it is."""

    # -- offsets

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets (of the assigned partitions, if none is named); None where there is none."""
        wanted = list(partitions or self._fetcher.states)
        found = await self._cluster.policy.run(lambda: self._ask_committed(wanted), what="committed offsets")
        return {partition: found[partition].offset if partition in found else None for partition in wanted}

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, CommittedOffset | None]:
        """As `committed`, with the leader epoch and the note that were committed with each offset."""
        wanted = list(partitions or self._fetcher.states)
        found = await self._cluster.policy.run(lambda: self._ask_committed(wanted), what="committed offsets")
        return {partition: found.get(partition) for partition in wanted}

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit the positions (or `offsets`, each the next one to read) of this member, outside of transactions.

        Positions are those after the records in hand, after a `seek`, or where reading began, as in Kafka's own client.
        Returns when they are committed. While the group rebalances this waits, as long as the partitions stay ours;
        a CommittedOffset carries a note of your own. Raises KafkaError (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
        FENCED_MEMBER_EPOCH) when the group has given the partitions to others, FencedError for a static member with
        a successor, RetriableError at the deadline (`default_api_timeout_ms`).
        """
        if offsets is None:
            await self._wait_found()
            _, wanted = self.offsets_in_hand()
        else:
            wanted = {
                TopicPartition(*partition): place if isinstance(place, CommittedOffset) else CommittedOffset(place)
                for partition, place in offsets.items()
            }
        if wanted:
            await self._commit(wanted)

    async def _commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], *, deadline_ms: float | None = None
    ) -> None:
        began = trio.current_time()
        states = self._fetcher.states
        held = {partition: states[partition] for partition in offsets if partition in states}

        async def attempt() -> None:
            if any(self._fetcher.states.get(partition) is not state for partition, state in held.items()):
                raise KafkaError(
                    "the group has given partitions away", code=ErrorCode.ILLEGAL_GENERATION, api="OffsetCommit"
                )
            group = self._group()
            if self._membership is not None and not self._membership.is_member:
                raise RetriableError("this consumer is joining its group", code=ErrorCode.REBALANCE_IN_PROGRESS)
            try:
                await commit_offsets(self._cluster, group, offsets, self._purpose)
            except KafkaError as error:
                raise self._after_refusal(group, error) from error

        with self._promise({partition: place.offset for partition, place in offsets.items()}) as promise:
            await self._cluster.policy.run(attempt, deadline_ms=deadline_ms, what="committing offsets")
            self._fetcher.metrics.committed(trio.current_time() - began)
            promise.keep()

    def _after_refusal(self, group: GroupMetadata, error: KafkaError) -> KafkaError:
        """What a refused commit means: the name it was sent under may be old already, or be about to change."""
        if self._membership is None or error.code not in STALE_MEMBER:
            return error
        again = error.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH)
        if again or (self._membership.is_member and self._membership.metadata != group):
            return RetriableError(str(error.args[0]), code=error.code, api=error.api, node=error.node)
        self._membership.refused(group, error.code)
        return error

    def _positions(self) -> dict[TopicPartition, CommittedOffset]:
        """The positions that are not committed yet."""
        return {
            partition: CommittedOffset(state.position, state.leader_epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None and not state.settled()
        }

    async def _auto_commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], *, deadline_ms: float | None = None
    ) -> None:
        """Commit what the program is done with. What fails only means that records come again: a line in the log."""
        if not offsets:
            return
        try:
            await self._commit(offsets, deadline_ms=deadline_ms)
        except FatalError as error:
            self._fetcher.fail(error)
        except KafkaError as error:
            logger.warning("group %s: offsets were not committed, their records come again: %s", self.group_id, error)

    # -- for transactions

    def offsets_in_hand(self) -> tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]:
        """Who this consumer is in its group, and the positions not committed yet.

        Raises AbortableError when the group is known to have given partitions of the batch in hand to others.
        """
        if self._void:
            raise RuntimeError("the last commit's outcome is unknown: read the records again instead of retrying them")
        if self._lost_in_hand:
            raise AbortableError(
                "the group has given this batch's partitions away", code=ErrorCode.ILLEGAL_GENERATION, api="Heartbeat"
            )
        return self._group(), self._whole.offsets() if self._whole is not None else self._positions()

    def _note_loss(self, partitions: Collection[TopicPartition]) -> None:
        """These go: if records of them were given and not committed, whoever gets them will read these again."""
        states = [state for p in partitions if (state := self._fetcher.states.get(p)) is not None]
        moved = any(state.back.untold(state.position) for state in states)
        if self._whole.given if self._whole is not None else moved:
            self._lost_at = next(MOMENTS)

    def _vouch(self, since: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Raise AbortableError where `offsets` must not become part of a transaction that began at `since`.

        That is so where the group has given this member up: a commit without a member's name is not checked by the
        group (KIP-447). And where partitions went with records that the transaction may rest on, but whose offsets it
        lacks: their next owner reads these records again.
        """
        if self._lost_at > since:
            raise AbortableError(
                "the group has taken partitions away since the transaction began, whose records were not committed",
                code=ErrorCode.ILLEGAL_GENERATION,
                api="Heartbeat",
            )
        if offsets and self._membership is not None and not self._membership.is_member:
            raise AbortableError(
                "this consumer is no member of its group now", code=ErrorCode.UNKNOWN_MEMBER_ID, api="Heartbeat"
            )

    def _promise(self, offsets: Mapping[TopicPartition, int]) -> "Promise":
        """A commit of these offsets begins, which are as they stand now."""
        return Promise(self, offsets)

    def rewind(self) -> None:
        """Go back to where the last commit was; what was read since comes again.

        While a batch is in hand this waits for the next read: a program may also try the same batch once more, and
        when that commits there is nothing to go back for.
        """
        self._sought.clear()
        if self._resting:
            self._go_back()
        else:
            self._rewind_due = True

    def _go_back(self) -> None:
        self._rewind_due = False
        if self._whole is not None:
            self._whole.rewind()
            self._fetcher.wake()
            return
        for partition, state in self._fetcher.states.items():
            if partition not in self._sought:
                state.go_back()
        self._fetcher.wake()

    def forget_positions(self) -> None:
        """Nobody knows what is committed: ask the group before reading on; the batch in hand must not be retried."""
        self._void = not self._resting
        if self._whole is not None:
            self._whole.forget()
        for state in self._fetcher.states.values():
            state.go_back()
            if self.group_id is not None:
                state.committed = None
                state.jump(None)
        self._fetcher.wake()


class Promise:
    """Offsets on their way to the group. Once `keep` says that they are committed, an abort goes back no further.

    What the program has sought since they were taken stays as it is: its word is the later one, whenever the answer
    comes. Used as a context, it is dropped at the end unless it was kept.
    """

    def __init__(self, consumer: Committing, offsets: Mapping[TopicPartition, int]) -> None:
        self._consumer = consumer
        self._offsets = dict(offsets)
        states = consumer._fetcher.states
        held = {partition: states[partition] for partition in offsets if partition in states}
        self._stories = [(state, state.back.promise(offsets[p]), state.seeks) for p, state in held.items()]

    def __enter__(self) -> "Promise":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """They are not committed, as far as is known. Nothing happens where that was told already."""
        for state, story, _ in self._stories:
            state.back.drop(story)
        self._stories.clear()

    def keep(self) -> None:
        """They are committed."""
        consumer = self._consumer
        if consumer._whole is not None:
            consumer._whole.committed()
        handled = consumer._handled
        for state, story, seeks in self._stories:
            partition, offset = state.partition, self._offsets[state.partition]
            state.back.keep(story)
            state.committed = offset
            done = handled.get(partition)
            if consumer._minds_hand and state.seeks == seeks and (done is None or done.offset < offset):
                handled[partition] = CommittedOffset(offset)
        self._stories.clear()
