"""The transactional ids of this broker for those who only read: states, figures, and what is proved by them."""

from collections.abc import Collection
from typing import TypeAlias

import trio

from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.runtime.shard import Shard
from fencepost.coordinator.txn import listing
from fencepost.coordinator.txn.shard_state import TxnShardState
from fencepost.coordinator.txn.state import DEAD, PHASES, Dead, PrepareAbort, PrepareCommit, TxnRecord, TxnState
from fencepost.protocol.topics import TopicPartition

TxnShard: TypeAlias = Shard[TxnShardState, TxnRecord]
TxnRuntime: TypeAlias = CoordinatorRuntime[TxnShardState, TxnRecord, str]


class TransactionalIds:
    """The ids of all shards. What it returns may rest on records that are not durable yet."""

    def __init__(self, runtime: TxnRuntime) -> None:
        self._runtime = runtime

    def __len__(self) -> int:
        return sum(len(shard.state) for shard in self._runtime.shards())

    def state_of(self, transactional_id: str) -> TxnState:
        """The state of an id; DEAD if it is unknown."""
        shard = self._runtime.find(transactional_id)
        return DEAD if shard is None else shard.state.state_of(transactional_id)

    @property
    def counts(self) -> dict[str, int]:
        """How many ids are in each state, by Kafka's names."""
        shards = self._runtime.shards()
        return {phase.name: sum(shard.state.count(phase) for shard in shards) for phase in PHASES if phase is not Dead}

    @property
    def oldest_open_started_ms(self) -> int | None:
        """When the oldest open transaction began, in ms since 1970; None when none is open."""
        open_states = (state for shard in self._runtime.shards() for state in shard.state.open.values())
        return min((state.started_ms for state in open_states), default=None)

    @property
    def knows_everything(self) -> bool:
        """Whether every shard is active. Only then does an unknown transaction belong to no coordinator."""
        return not any(shard.refusal for shard in self._runtime.shards())

    def knows(self, partitions: Collection[int]) -> bool:
        """Whether these shards are active, or were never used."""
        shards = [self._runtime.at(partition) for partition in partitions]
        return not any(shard is not None and shard.refusal for shard in shards)

    def owned(self) -> Collection[tuple[int, TopicPartition]]:
        """Every (producer id, partition) that an open or decided transaction will end, whatever its epoch is.

        Atomic: no other task runs while it is computed. It includes transactions that are not durable yet.
        """
        found: set[tuple[int, TopicPartition]] = set()
        for shard in self._runtime.shards():
            for ongoing in shard.state.open.values():
                found.update((ongoing.producer.producer_id, partition) for partition in ongoing.partitions)
            if shard.state.count(PrepareCommit) or shard.state.count(PrepareAbort):
                for _, state in shard.state.prepared():
                    found.update((state.producer.producer_id, partition) for partition in state.partitions)
        return found

    async def of_producer(self, producer_id: int) -> list[str]:
        """The transactional ids whose newest identity has this producer id: one at most, unless the logs disagree."""
        found, filters = list[str](), listing.Filters(producer_ids=frozenset({producer_id}))
        for shard in self._runtime.shards():
            lines = listing.select(shard.state.items(), filters, 0).transactions
            found += [line.transactional_id for line in lines]
            await trio.lowlevel.checkpoint()
        return found
