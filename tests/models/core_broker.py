"""A broker of a small world: the product's session, rounds and logs, and a coordinator that is the world's own."""

import threading
from collections.abc import Iterator
from typing import Any

from fencepost.broker.cluster.commit.rounds import Cut, Foreign, RoundLimits, Rounds
from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.shared_logs import SharedLogs
from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import (
    Identity,
    NewLog,
    Row,
    log_id,
    slot_of,
)
from fencepost.broker.cluster.reading.loading import load_logs
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.batch_header import BatchHeader, read_header
from fencepost.protocol.control_records import same_marker
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import TopicPartition
from tests.kit.shared_store import TOPIC_ID, ColdAtOnce, ObjectsInMemory, Stores
from tests.kit.sim_engine import SimEngine

NOW_MS = 1_700_000_000_000
P, Q = 7, 8
"""The transactional producer, and an idempotent one without transactions."""
NO_ID = -1
"""A producer without an id, which sends nothing twice."""
BODY = 21
"""A batch's bytes from here on stay as they were sent: what stands before depends on its place."""
TXNS_ID = bytes(16)
TXNS = TopicPartition("__transaction_state", 0)
DATA = (TopicPartition("orders", 0), TopicPartition("orders", 1))
IDS = {TXNS: log_id(TXNS_ID, 0), **{tp: log_id(TOPIC_ID, tp.partition) for tp in DATA}}


class NoWait(threading.Event):
    """Virtual time: a pause takes none."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class GuestMarkers:
    """Markers for the log of another broker: a `Participant` without an expectation."""

    def __init__(self, rounds: Rounds, tp: TopicPartition, leader_epoch: int) -> None:
        self.batches: list[bytearray] = []
        self._rounds = rounds
        self._tp = tp
        self._leader_epoch = leader_epoch
        self._cut_count = 0

    def append(self, marker: bytes) -> None:
        self.batches.append(bytearray(marker))
        self._rounds.enlist(self)

    def cut(self) -> Cut | None:
        self._cut_count = len(self.batches)
        headers = [read_header(batch) for batch in self.batches]
        new_log = NewLog(str(self._tp), TOPIC_ID)
        where = self, IDS[self._tp], None, False
        return Cut(*where, list(self.batches), headers, self._leader_epoch, new_log) if self.batches else None

    def committed(self, row: Row, foreign: list[Foreign]) -> None:
        del self.batches[: self._cut_count]

    def refused(self, foreign: list[Foreign]) -> None:
        raise AssertionError("a guest's marker is never refused")


class Broker:
    """One process: its connection, its rounds, the logs that it believes to own, and its waiting guests' markers."""

    def __init__(self, stores: Stores, inline_bytes: int, number: int) -> None:
        self.number = number
        self.engine = SimEngine(stores.database)
        self.row_bytes = ObjectsInMemory(self.engine, stores.objects)
        self.writer = Writer(self.engine, self.engine.join(number, f"broker-{number}", 0))
        self.writer._stopping = NoWait()
        self.rounds = Rounds(
            self.engine, self.writer, self.row_bytes, self._fence, RoundLimits(inline_bytes=inline_bytes)
        )
        self.fenced = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.guests: dict[TopicPartition, GuestMarkers] = {}
        self.tickets: list[tuple[TopicPartition, bytes, Ticket]] = []

    def _fence(self) -> None:
        self.fenced = True
        self.logs.clear()

    def take(self, *tps: TopicPartition) -> None:
        """Own these logs, with all rows that are there; guests' markers that wait become the owner's appends."""
        self.engine.take_over(self.writer.identity, {slot_of(IDS[tp]) for tp in tps}, 0)
        epochs = {slot.slot: slot.epoch for slot in self.engine.slots()}
        loaded = load_logs(self.engine, self.row_bytes, {slot_of(IDS[tp]) for tp in tps})
        cold, scratch = ColdAtOnce(self.engine, self.row_bytes), MemoryStore()
        logs = SharedLogs("database", loaded, self.rounds, cold, scratch, lambda log: epochs[slot_of(log)])
        for tp in tps:
            topic_id = TXNS_ID if tp == TXNS else TOPIC_ID
            opened = logs.open(str(tp), LogConfig(), 0, 0, topic_id)
            self.logs[tp] = PartitionLog(tp, topic_id, LogConfig(), logs.files(str(tp)), opened)
            waiting = self.guests.pop(tp, None)
            if waiting is not None:
                self.rounds.forget(waiting)
                for marker in waiting.batches:
                    self.mark(tp, read_header(marker).producer_epoch)

    def is_settled(self, tp: TopicPartition) -> bool:
        """Whether none of its appends to this log of its own waits, or is in the round under way."""
        log = shared(self.logs[tp])
        return log.end_offset == log.bound_end and not log.is_in_round

    def give_up(self, tp: TopicPartition) -> None:
        """Hand a log over, as `SlotMoves` does: another broker may adopt it."""
        shared(self.logs.pop(tp)).close()
        self.engine.give_up(self.writer.identity, [slot_of(IDS[tp])])

    def send(self, tp: TopicPartition, data: bytearray, origin: AppendOrigin, version: int, guard: Any) -> None:
        ticket = self.logs[tp].append(data, origin, NOW_MS, transaction_version=version, guard=guard)
        self.tickets.append((tp, bytes(data[BODY:]), ticket))

    def decide(self, epoch: int) -> None:
        """EndTxn: the decision, and all markers, in one instant."""
        self.send(TXNS, decision(epoch), AppendOrigin.COORDINATOR, 0, None)
        for tp in DATA:
            self.mark(tp, epoch + 1)

    def mark(self, tp: TopicPartition, epoch: int) -> None:
        marker, _ = same_marker(P, epoch, False, 0, NOW_MS)
        if tp in self.logs:
            ticket = self.logs[tp].append_marker(P, epoch, False, 0, 2, NOW_MS)
            self.tickets.append((tp, marker[BODY:], ticket))
        else:
            if tp not in self.guests:
                slot = self.engine.slots()[slot_of(IDS[tp])]
                self.guests[tp] = GuestMarkers(self.rounds, tp, slot.epoch)
            self.guests[tp].append(marker)

    def decided(self, epoch: int, *, durable: bool) -> bool:
        """Whether this coordinator knows that the transaction of this epoch has ended."""
        log = shared(self.logs[TXNS])
        known = [body for _, body in kept(log)]
        waiting = [] if durable else [bytes(batch[BODY:]) for batch in log._batches]
        return bytes(decision(epoch)[BODY:]) in known + waiting

    @property
    def task(self) -> Any:
        """The round under way."""
        return self.rounds._round

    @property
    def is_current(self) -> bool:
        row = self.engine.database.brokers[self.number]
        return self.writer.identity == Identity(self.number, row.incarnation, row.session)


def client_batch(producer: int, tp: TopicPartition, epoch: int, sequence: int) -> bytearray:
    """The same bytes each time: a repetition is the same batch."""
    value = b"%d of %d in %d" % (sequence, producer, tp.partition)
    return build_batch(
        [(NOW_MS, None, value, ())],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=producer == P,
    )


def decision(epoch: int) -> bytearray:
    """The coordinator's row that ends a transaction."""
    return build_batch([(NOW_MS, b"P", b"ended %d" % epoch, ())])


def shared(log: PartitionLog) -> SharedLog:
    assert isinstance(log.segments, SharedLog)
    return log.segments


def kept(log: SharedLog) -> list[tuple[int, bytes]]:
    """The offset and the body of each batch in a broker's tail."""
    tail, found = log._tail, []
    for segment in tail:
        for _, header, data in segment_batches(segment):
            found.append((header.base_offset, bytes(data[BODY:])))
    return found


def segment_batches(segment: Any) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    from fencepost.broker.log.recovery.scanning import batches

    yield from batches(segment, 0)


def cuts_of(task: Any) -> object:
    """What a round commits."""
    return tuple((cut.log_id, cut.expected, tuple(map(bytes, cut.batches))) for cut in task.cuts)
