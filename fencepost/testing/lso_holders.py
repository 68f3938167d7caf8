"""Transactions that are not over: their producers, their age, and the partitions that they hold."""

from collections.abc import Iterator
from dataclasses import dataclass

from fencepost.coordinator.txn.state import Ongoing, PrepareAbort, PrepareCommit
from fencepost.protocol.topics import TopicPartition
from fencepost.testing.faulty_node import FaultyNode


@dataclass(frozen=True)
class HeldPartition:
    """A partition in an open transaction. `first_offset` is None if it has no record there, or already its marker."""

    partition: TopicPartition
    first_offset: int | None
    lso: int
    high_watermark: int

    @property
    def hidden(self) -> int:
        """How many offsets read_committed consumers cannot read because of this transaction."""
        blocks = self.first_offset is not None and self.lso == self.first_offset
        return self.high_watermark - self.lso if blocks else 0

    def __str__(self) -> str:
        name = f"{self.partition.topic}-{self.partition.partition}"
        if self.first_offset is None:
            return f"{name} (nothing written, or its marker is there)"
        behind = f", read_committed waits there with {self.hidden} offsets behind it" if self.hidden else ""
        return f"{name} from offset {self.first_offset}{behind}"


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is not over. `state` is Ongoing, PrepareCommit or PrepareAbort, as in Kafka's tools.

    A "Hanging" one is open in a partition and unknown to the coordinator; its `transactional_id` is None.
    """

    transactional_id: str | None
    state: str
    producer_id: int
    producer_epoch: int
    age_seconds: float
    timeout_seconds: float | None
    client_id: str | None
    client_host: str | None
    held: tuple[HeldPartition, ...]

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction."""
        return tuple(held.partition for held in self.held)

    def __str__(self) -> str:
        name = "unknown to the coordinator" if self.transactional_id is None else repr(self.transactional_id)
        client = f", client {self.client_id!r} at {self.client_host}" if self.client_host else ""
        limit = f" of {self.timeout_seconds:g} s" if self.timeout_seconds is not None else ""
        head = (
            f"{name}: {self.state} for {self.age_seconds:.1f} s{limit}"
            f" (producer {self.producer_id} epoch {self.producer_epoch}{client})"
        )
        return "\n".join([head, *(f"    holds {held}" for held in self.held)])


def open_transactions(node: FaultyNode) -> list[OpenTransaction]:
    """All transactions that are not over, oldest first; in the broker's thread."""
    known = list(_known(node))
    found = [*known, *_hanging(node, {one.producer_id for one in known})]
    return sorted(found, key=lambda one: -one.age_seconds)


def _known(node: FaultyNode) -> Iterator[OpenTransaction]:
    now_ms = node.clock.now_ms()
    for shard in node.transactions.runtime.shards():
        for name, state in shard.state.items():
            if not isinstance(state, Ongoing | PrepareCommit | PrepareAbort):
                continue
            producer_id = state.producer.producer_id
            client_id, host = node.journal.owners.get(name, (None, None))
            yield OpenTransaction(
                name,
                state.name,
                producer_id,
                state.producer.epoch,
                (now_ms - state.started_ms) / 1000,
                state.timeout_ms / 1000 if state.timeout_ms > 0 else None,
                client_id,
                host,
                tuple(_held(node, tp, producer_id) for tp in sorted(state.partitions)),
            )


def _held(node: FaultyNode, tp: TopicPartition, producer_id: int) -> HeldPartition:
    log = node.partition(tp)
    if log is None:
        return HeldPartition(tp, None, 0, 0)
    opened = log.producers.open_transactions()
    first = next((one.first_offset for one in opened if one.producer_id == producer_id), None)
    return HeldPartition(tp, first, log.last_stable_offset, log.high_watermark)


def _hanging(node: FaultyNode, known: set[int]) -> Iterator[OpenTransaction]:
    now_ms = node.clock.now_ms()
    for topic in node.metadata.image.topics_by_name.values():
        for number in range(topic.partitions):
            tp = TopicPartition(topic.name, number)
            log = node.partition(tp)
            for one in log.producers.open_transactions() if log is not None else ():
                if one.producer_id not in known:
                    age_seconds = (now_ms - one.last_timestamp_ms) / 1000
                    held = (_held(node, tp, one.producer_id),)
                    yield OpenTransaction(
                        None, "Hanging", one.producer_id, one.producer_epoch, age_seconds, None, None, None, held
                    )
