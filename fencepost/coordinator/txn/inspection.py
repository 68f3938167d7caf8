"""Looking at the coordinator from outside: its listings and descriptions, and who owns an open transaction."""

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
    """What tools and checks may ask. It changes nothing."""

    def __init__(self, store: TxnStore, completions: Completions, clock: Clock) -> None:
        self._store = store
        self._completions = completions
        self._clock = clock

    async def transactions(self, filters: listing.Filters) -> listing.Listing:
        """ListTransactions (row T18): what passes all filters, as far as it is durable."""
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
        told = listing.describe(transactional_id, state, self._completions.owed(transactional_id))
        if told.error is not ErrorCode.NONE:
            return told
        shard = self._store.shard_of(transactional_id)
        refused = await shard.settled(shard.log.newest)
        return listing.Description(transactional_id, refused) if refused else told

    @property
    def knows_everything(self) -> bool:
        """Whether every shard is active: only then is something unknown to this coordinator known to nobody."""
        return not any(shard.refusal for shard in self._store.shards())

    def owned(self) -> Collection[tuple[int, TopicPartition]]:
        """Every (producer id, partition) that an open or decided transaction will end, whatever its epoch is.

        All in one moment: no other task runs between the state and the answer. It holds what is not durable, too.
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
        """The transactional ids whose newest identity has this producer id: one at most, but after a mishap."""
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
