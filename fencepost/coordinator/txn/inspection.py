"""Read access to the coordinator: its listings and descriptions, and which transactions own a partition."""

from collections.abc import Collection
from dataclasses import replace

import trio

from fencepost.coordinator.ports import Clock
from fencepost.coordinator.txn import listing
from fencepost.coordinator.txn.completion import Completions
from fencepost.coordinator.txn.state import PrepareAbort, PrepareCommit
from fencepost.coordinator.txn.store import TxnStore
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class Inspection:
    """The questions of tools and checks. It changes nothing."""

    def __init__(self, store: TxnStore, completions: Completions, clock: Clock) -> None:
        self._store = store
        self._completions = completions
        self._clock = clock

    async def transactions(self, filters: listing.Filters) -> listing.Listing:
        """ListTransactions (row T18): the durable transactions that pass all filters."""
        whole = listing.select((), filters, 0)
        found: list[listing.Listed] = []
        for shard in self._store.shards() if whole.error is ErrorCode.NONE else ():
            lines = listing.select(shard.state.items(), filters, self._clock.now_ms()).transactions
            found += () if await shard.settled(shard.log.newest) else lines
            await trio.lowlevel.checkpoint()
        return replace(whole, transactions=tuple(sorted(found, key=lambda line: line.transactional_id)))

    async def describe(self, transactional_id: str) -> listing.Description:
        """DescribeTransactions for one id (row T19)."""
        if refusal := self._store.refusal(transactional_id):
            return listing.Description(transactional_id, refusal)
        state = self._store.state_of(transactional_id)
        description = listing.describe(transactional_id, state, self._completions.pending(transactional_id))
        if description.error is not ErrorCode.NONE:
            return description
        shard = self._store.shard_of(transactional_id)
        refused = await shard.settled(shard.log.newest)
        return listing.Description(transactional_id, refused) if refused else description

    @property
    def knows_everything(self) -> bool:
        """Whether every shard is active. Only then does an unknown transaction belong to no coordinator."""
        return not any(shard.refusal for shard in self._store.shards())

    def knows(self, partitions: Collection[int]) -> bool:
        """Whether these shards are active, or were never used."""
        shards = [self._store.runtime.at(partition) for partition in partitions]
        return not any(shard is not None and shard.refusal for shard in shards)

    def owned(self) -> Collection[tuple[int, TopicPartition]]:
        """Every (producer id, partition) that an open or decided transaction will end, whatever its epoch is.

        Atomic: no other task runs while it is computed. It includes transactions that are not durable yet.
        """
        found: set[tuple[int, TopicPartition]] = set()
        for shard in self._store.shards():
            for ongoing in shard.state.open.values():
                found.update((ongoing.producer.producer_id, partition) for partition in ongoing.partitions)
            if shard.state.count(PrepareCommit) or shard.state.count(PrepareAbort):
                for _, state in shard.state.prepared():
                    found.update((state.producer.producer_id, partition) for partition in state.partitions)
        return found

    async def ids_of(self, producer_id: int) -> list[str]:
        """The transactional ids whose newest identity has this producer id: one at most, unless the logs disagree."""
        found = []
        for shard in self._store.shards():
            found += [
                line.transactional_id
                for line in listing.select(
                    shard.state.items(), listing.Filters(producer_ids=frozenset({producer_id})), 0
                ).transactions
            ]
            await trio.lowlevel.checkpoint()
        return found
