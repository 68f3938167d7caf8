"""Two brokers with the real cores over the database's specification: every step that a small scope allows.

Broker A leads two partitions; broker B coordinates the transactions of producer P, and writes its markers as a guest.
Each may take all that the other has over. The clients, the coordinator's bookkeeping and the network are the world's
own; rounds, sessions, logs, producers' states and late appends are the product's.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.cluster.engine import (
    Row,
    slot_of,
)
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import ALREADY_OPEN, AppendOrigin
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import TopicPartition
from tests.kit.shared_store import Stores
from tests.kit.sim_connection import no_fault
from tests.models.core_broker import BODY, DATA, IDS, NOW_MS, TXNS, Broker, P, Q, client_batch, cuts_of, shared
from tests.models.core_faults import FAULTS


class Limits(NamedTuple):
    """How much may happen in a world."""

    sequences: int = 2
    """Batches of a producer in one partition, and epoch."""
    epochs: int = 2
    """Transactions of P, one after the other."""
    plain: int = 2
    """Batches without a producer id."""
    faults: int = 0
    takeovers: int = 0
    restarts: int = 0
    handovers: int = 0


class World:
    """The stores, both brokers, and what the clients know."""

    def __init__(self, limits: Limits, inline_bytes: int = 1 << 14) -> None:
        self.limits = limits
        self.stores = Stores()
        self.inline_bytes = inline_bytes
        self.epoch = 0
        self.plain = self.faults = self.takeovers = self.restarts = self.handovers = 0
        self.ended: list[Broker] = []
        """Brokers whose process was killed."""
        self.in_flight: list[object] = []
        self.brokers = {name: Broker(self.stores, self.inline_bytes, number) for number, name in enumerate("AB", 1)}
        self.brokers["A"].take(*DATA)
        self.brokers["B"].take(TXNS)

    # Steps

    def enabled(self) -> Iterator[str]:
        """Every step that is possible now."""
        limits = self.limits
        coordinators = [name for name, broker in self.brokers.items() if TXNS in broker.logs]
        for name, broker in self.brokers.items():
            yield from self._client_steps(name, broker)
            if self.restarts < limits.restarts:
                yield f"restart {name}"
            if self.handovers < limits.handovers and broker.is_current:
                yield from (f"give{tp.partition} {name}" for tp in DATA if tp in broker.logs and broker.is_settled(tp))
            if broker.task is None:
                if broker.rounds._waiting:
                    yield from (f"begin {name}", f"round {name}")
                if broker.is_current and self.takeovers < limits.takeovers and len(broker.logs) < len(IDS):
                    yield f"take {name}"
                if broker.is_current and self._without_owner():
                    yield f"adopt {name}"
            elif broker.task.done:
                yield f"deliver {name}"
            else:
                yield f"sync {name}"
                if self.faults < limits.faults:
                    yield from (f"{fault} {name}" for fault in FAULTS)
        if self.epoch + 1 < limits.epochs and any(
            self.brokers[name].decided(self.epoch, durable=True) for name in coordinators
        ):
            yield "next"
        if self.in_flight:
            yield "arrive"

    def _without_owner(self) -> list[TopicPartition]:
        slots = self.stores.database.slots
        return [tp for tp in IDS if slots[slot_of(IDS[tp])].broker is None]

    def _client_steps(self, name: str, broker: Broker) -> Iterator[str]:
        for tp in DATA:
            if tp in broker.logs:
                yield from (f"P{tp.partition} {name}", f"Q{tp.partition} {name}")
        if DATA[0] in broker.logs and self.plain < self.limits.plain:
            yield f"plain {name}"
        if TXNS in broker.logs and not broker.decided(self.epoch, durable=False):
            yield f"end {name}"

    def play(self, step: str) -> None:
        """One step."""
        word, _, name = step.partition(" ")
        if word == "next":
            self.epoch += 1
            return
        if word == "arrive":
            self._arrive()
            return
        broker = self.brokers[name]
        if word[0] in "PQ":
            self._produce(broker, P if word[0] == "P" else Q, DATA[int(word[1])])
        elif word == "plain":
            self.plain += 1
            data = build_batch([(NOW_MS, None, b"plain %d" % self.plain, ())])
            broker.send(DATA[0], data, AppendOrigin.CLIENT, 0, None)
        elif word == "end":
            broker.decide(self.epoch)
        elif word == "begin":
            broker.rounds.begin()
        elif word == "round":
            self._round(broker)
        elif word == "deliver":
            broker.rounds.deliver()
        elif word == "take":
            self.takeovers += 1
            broker.take(*IDS.keys() - broker.logs.keys())
        elif word == "adopt":
            broker.take(*self._without_owner())
        elif word.startswith("give"):
            self.handovers += 1
            broker.give_up(DATA[int(word[4:])])
        elif word == "restart":
            self.restarts += 1
            self.ended.append(broker)
            self.brokers[name] = Broker(self.stores, self.inline_bytes, broker.number)
        elif word == "sync":
            broker.task.sync()
        else:
            self.faults += 1
            FAULTS[word](self, broker)
            broker.engine.before = broker.engine.after = no_fault
            broker.engine.held.clear()

    def _produce(self, broker: Broker, producer: int, tp: TopicPartition) -> None:
        """The next batch in the order of this broker, unless it was acknowledged; verified by any coordinator."""
        log, epoch = broker.logs[tp], self.epoch if producer == P else 0
        entry = log.producers.get(producer)
        sequence = 0 if entry is None or entry.epoch != epoch else entry.last_sequence + 1
        data = client_batch(producer, tp, epoch, sequence)
        if sequence >= self.limits.sequences or (tp, bytes(data[BODY:])) in self.acknowledged():
            return
        guard = None
        if producer == P:
            coordinators = [one for one in self.brokers.values() if TXNS in one.logs]
            if all(one.decided(epoch, durable=False) for one in coordinators):
                return
            guard = log.verify(P, epoch, sequence, 2) or ALREADY_OPEN
        broker.send(tp, data, AppendOrigin.CLIENT, 2 if producer == P else 0, guard)

    def _round(self, broker: Broker) -> None:
        for task in broker.rounds.begin():
            task.sync()
        broker.rounds.deliver()

    def _arrive(self) -> None:
        self.in_flight.clear()
        self.stores.database.deliver()

    def settle(self) -> None:
        """Until nothing waits, without faults."""
        self._arrive()
        for _ in range(6):
            for broker in self.brokers.values():
                if broker.task is not None and not broker.task.done:
                    broker.task.sync()
                broker.rounds.deliver()
                self._round(broker)

    # What can be seen

    def acknowledged(self) -> dict[tuple[TopicPartition, bytes], int]:
        """The base offset of each batch that a client has an answer for."""
        return {
            (tp, body): ticket.base_offset
            for broker in (*self.ended, *self.brokers.values())
            for tp, body, ticket in broker.tickets
            if ticket.error is ErrorCode.NONE and ticket.is_settled
        }

    def rows(self, tp: TopicPartition) -> list[tuple[Row, bytes]]:
        """The rows of a log, with their bytes."""
        rows = self.stores.database.rows.get(IDS[tp], [])
        return [(row, self.row_data(row)) for row in rows]

    def row_data(self, row: Row) -> bytes:
        if row.inline is not None:
            return row.inline
        place = row.placement
        whole = self.stores.objects.get(place.object_id, b"")
        return whole[place.position : place.position + place.size_bytes]

    def fingerprint(self) -> int:
        """Everything that can make a difference later."""
        database = self.stores.database
        return hash(
            (
                tuple((row.base, row.leader_epoch, self.row_data(row)) for tp in IDS for row, _ in self.rows(tp)),
                tuple((slot.broker, slot.epoch) for slot in (database.slots[slot_of(log)] for log in IDS.values())),
                tuple(_broker_state(self, broker) for broker in self.brokers.values()),
                tuple(map(repr, self.in_flight)),
                frozenset(self.acknowledged()),
                (self.epoch, self.plain, self.faults, self.takeovers, self.restarts, self.handovers),
            )
        )


def _broker_state(world: World, broker: Broker) -> object:
    row = world.stores.database.brokers[broker.number]
    task = broker.task
    return (
        (broker.fenced, broker.writer.fenced, broker.is_current, broker.writer._seq - row.commit_seq),
        tuple(sorted((str(tp), _log_state(log)) for tp, log in broker.logs.items())),
        tuple((str(tp), tuple(map(bytes, guest.batches))) for tp, guest in sorted(broker.guests.items())),
        None if task is None else (task.done, cuts_of(task), repr(task.results)),
        len(broker.rounds._waiting),
    )


def _log_state(log: PartitionLog) -> object:
    late, stored = log._late, shared(log)
    assert late is not None
    guards = {
        producer: (guard.producer_epoch, guard.lowest_sequence) for producer, guard in log.producers._guards.items()
    }
    waiting = [(one.guard is not None, one.removed is not None, len(one.tickets)) for one in late._waiting]
    return (
        (stored._bound_end, stored._cut_count, stored._fixed, log.high_watermark, stored._new_log is None),
        tuple(map(bytes, stored._batches)),
        repr((log.producers._entries, log.producers._open, guards, late._bound._entries, late._bound._open, waiting)),
    )
