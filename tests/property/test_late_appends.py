"""Appends whose offsets are bound late: every short run, and long random ones, of a broker beside other writers.

A run is a word of operations. After each of them the log's state must be what a fold of the rows and of the waiting
appends comes to. When all is settled, the rows must be such as one process would have written them, and every ticket
must tell the truth about them.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.log.producer_state import ALREADY_OPEN, AppendOrigin, ProducerStates, Refusal, VerificationGuard
from fencepost.broker.log.recovery.scanning import replay
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import Bytes
from fencepost.protocol.batch_header import BatchHeader, read_header
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from tests.kit.examples import examples
from tests.kit.late_log_store import LateLogStore
from tests.unit.log.kit import NOW_MS, batch, late_log

A, B, PLAIN, OFFSETS = 1, 2, 3, 4
BODY = 21
"""From here on a batch's bytes stay as they were sent: what stands before depends on its place."""


class World:
    """One broker's log, guests that write markers into it, and what the clients and the coordinators know."""

    def __init__(self) -> None:
        self.store = LateLogStore(MemoryStore())
        self.log = late_log(self.store)
        self.late = self.log.segments
        self.rows = self.late.rows
        self.config = self.log.config
        self.epochs = {A: 0, B: 0, PLAIN: 0, OFFSETS: 0}
        self.guards: dict[int, tuple[VerificationGuard, int]] = {}
        self.sent: list[tuple[bytes, Ticket, int]] = []
        """A batch or marker of our own, its ticket, and the moment of its verification."""
        self.last: dict[int, bytes] = {}
        self.guests = 0
        self.now = 0
        self.known: dict[int, int] = {}
        """The moment at which the broker came to know each row, by its number."""

    # Operations

    def verify(self, producer: int) -> None:
        """A batch is on its way: its transaction is verified now."""
        self.guards[producer] = self._guard(producer)

    def data(self, producer: int) -> None:
        """A transactional batch with the next sequence, verified before or now."""
        guard, seen = self.guards.pop(producer, None) or self._guard(producer)
        data = self._next_batch(producer, transactional=True)
        self._append(data, producer, guard, seen)

    def plain(self) -> None:
        """An idempotent batch of no transaction."""
        self._append(self._next_batch(PLAIN, transactional=False), PLAIN, None, 0)

    def again(self, producer: int) -> None:
        """The producer had no answer and sends its last batch again (row P3)."""
        if producer in self.last:
            guard, seen = self._guard(producer) if producer != PLAIN else (None, 0)
            self._append(self.last[producer], producer, guard, seen)

    def offsets(self) -> None:
        """A coordinator's own batch for a transaction, which carries no sequence and no guard."""
        data = batch(1, OFFSETS, self.epochs[OFFSETS], transactional=True, value=b"%d" % len(self.sent))
        ticket = self.log.append(data, AppendOrigin.COORDINATOR, NOW_MS)
        self.sent.append((bytes(data), ticket, self._moment()))

    def end(self, producer: int, version: int) -> None:
        """A marker of our own coordinator: it aborts."""
        epoch = self._ended(producer, version)
        ticket = self.log.append_marker(producer, epoch, False, 0, version, NOW_MS)
        self.sent.append((bytes(end_txn_marker(producer, epoch, False, 0, NOW_MS)), ticket, self._moment()))

    def guest(self, producer: int, version: int) -> None:
        """A marker of another broker's coordinator: it stands in the log at once."""
        self.guests += 1
        epoch = self._ended(producer, version)
        self.rows.write(end_txn_marker(producer, epoch, False, 0, NOW_MS + self.guests), self.config)

    def commit(self, count: int | None) -> None:
        """The database commits what waits, or refuses it; the broker does not know yet."""
        if self.late._outcome is None:
            self.late.commit(count)

    def deliver(self) -> None:
        """The outcome reaches the broker."""
        self.late.deliver()

    def settle(self) -> None:
        """Until nothing waits."""
        for _ in range(len(self.sent) + 4):
            self.late.deliver()
            self.late.commit()
        self.late.deliver()

    # Judging

    def check(self) -> None:
        """The states are folds: of the rows that the broker knows, and of what waits behind them."""
        seen = self.late._seen
        assert self.log.high_watermark == seen
        known = [row for row in self.rows.since(0) if read_header(row).base_offset < seen]
        bound = folded(known)
        assert self.log._late is not None
        assert facts(self.log._late._bound) == facts(bound)
        waiting = [data for data, _ in self.late._waiting]
        assert facts(self.log.producers) == facts(folded([*known, *waiting]))
        unstable = bound.first_unstable_offset(seen)
        assert self.log.last_stable_offset == (seen if unstable is None else unstable)

    def check_settled(self) -> None:
        """The tickets tell the truth, and the rows are such as the rules of one process allow."""
        rows = self.rows.since(0)
        placed = {read_header(row).base_offset: row for row in rows}
        own: dict[int, tuple[Ticket, int]] = {}
        for data, ticket, moment in self.sent:
            assert ticket.is_settled
            if ticket.error is not ErrorCode.NONE:
                assert (ticket.base_offset, ticket.last_offset) == (-1, -1)
                continue
            row = placed[ticket.base_offset]
            assert row[BODY:] == data[BODY:]
            assert ticket.last_offset == read_header(row).last_offset
            if not ticket.duplicate:
                assert ticket.base_offset not in own, "every row is acknowledged to one append"
                own[ticket.base_offset] = ticket, moment
        assert len(own) + self.guests == len(rows), "no row stands there that nobody was told of"
        self._check_rules(rows, own)
        aborted = self.log.segments.aborted_between(0, self.rows.end_offset)
        assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == aborted_of(rows)
        again = late_log(LateLogStore(MemoryStore(), self.store.database))
        assert facts(again.producers) == facts(self.log.producers)

    def _check_rules(self, rows: list[bytes], own: dict[int, tuple[Ticket, int]]) -> None:
        states = ProducerStates()
        markers: dict[int, tuple[int, BatchHeader, bool]] = {}
        for number, row in enumerate(rows):
            header = read_header(row)
            producer, entry = header.producer_id, states.get(header.producer_id)
            mine = own.get(header.base_offset)
            if mine is not None and not header.is_control:
                origin = AppendOrigin.COORDINATOR if header.base_sequence < 0 else AppendOrigin.CLIENT
                refusal = states.check_data(header, header.base_offset, origin)
                assert not isinstance(refusal, Refusal), refusal
                assert states.find_duplicate(header) is None or origin is AppendOrigin.COORDINATOR
                if header.is_transactional and not states.has_open(producer) and producer in markers:
                    place, marker, bumped = markers[producer]
                    known = self._known_at(place, marker, own) < mine[1]
                    assert known or (bumped and marker.producer_epoch == header.producer_epoch), "T16: it would hang"
            if header.is_control:
                markers[producer] = number, header, entry is not None and entry.epoch < header.producer_epoch
            replay(states, "", 0, header, memoryview(row))

    def _known_at(self, place: int, marker: BatchHeader, own: dict[int, tuple[Ticket, int]]) -> int:
        """The moment at which the broker knew of a marker: its own when it appended it."""
        mine = own.get(marker.base_offset)
        return self.known.get(place, self.now + 1) if mine is None else mine[1]

    # Parts

    def _moment(self) -> int:
        """A number that grows with each thing that the broker does."""
        self.now += 1
        return self.now

    def _learn(self) -> None:
        """Note since when the broker knows each row."""
        for number, row in enumerate(self.rows.since(0)):
            if read_header(row).base_offset < self.late._seen:
                self.known.setdefault(number, self._moment())

    def _guard(self, producer: int) -> tuple[VerificationGuard, int]:
        guard = self.log.verify(producer, self.epochs[producer], self._next_sequence(producer), 0)
        return guard or ALREADY_OPEN, self._moment()

    def _next_sequence(self, producer: int) -> int:
        entry = self.log.producers.get(producer)
        return 0 if entry is None or entry.epoch != self.epochs[producer] else entry.last_sequence + 1

    def _next_batch(self, producer: int, *, transactional: bool) -> bytearray:
        value = b"%d" % len(self.sent)  # no two batches are alike
        sequence = self._next_sequence(producer)
        data = batch(1, producer, self.epochs[producer], sequence, transactional=transactional, value=value)
        self.last[producer] = bytes(data)
        return data

    def _append(self, data: Bytes, producer: int, guard: VerificationGuard | None, moment: int) -> None:
        ticket = self.log.append(data, AppendOrigin.CLIENT, NOW_MS, guard=guard)
        self.sent.append((bytes(data), ticket, moment))

    def _ended(self, producer: int, version: int) -> int:
        """The epoch of a marker; of version 2 the producer goes on with that one."""
        if version == 2:
            self.epochs[producer] += 1
        return self.epochs[producer]


def folded(rows: list[bytes]) -> ProducerStates:
    states = ProducerStates()
    for row in rows:
        replay(states, "", 0, read_header(row), memoryview(row))
    return states


def facts(states: ProducerStates) -> Any:
    """What two states must have in common."""
    return dict(states._entries), dict(states._open)


def aborted_of(rows: list[bytes]) -> list[tuple[int, int, int]]:
    """The aborted transactions by definition: producer, first offset and the marker's, ordered by the first offset."""
    found, is_open = [], dict[int, int]()
    for row in rows:
        header = read_header(row)
        if header.is_control:
            first = is_open.pop(header.producer_id, None)
            if first is not None:
                found.append((header.producer_id, first, header.base_offset))
        elif header.is_transactional:
            is_open.setdefault(header.producer_id, header.base_offset)
    return sorted(found, key=lambda entry: entry[1])


OPERATIONS: dict[str, Callable[[World], None]] = {
    "verify A": lambda world: world.verify(A),
    "data A": lambda world: world.data(A),
    "data B": lambda world: world.data(B),
    "plain": lambda world: world.plain(),
    "again A": lambda world: world.again(A),
    "offsets": lambda world: world.offsets(),
    "end A 1": lambda world: world.end(A, 1),
    "end A 2": lambda world: world.end(A, 2),
    "guest A 1": lambda world: world.guest(A, 1),
    "guest A 2": lambda world: world.guest(A, 2),
    "guest B 2": lambda world: world.guest(B, 2),
    "guest of offsets": lambda world: world.guest(OFFSETS, 2),
    "old guest of offsets": lambda world: world.guest(OFFSETS, 1),
    "commit one": lambda world: world.commit(1),
    "commit all": lambda world: world.commit(None),
    "deliver": lambda world: world.deliver(),
}
CORE = ["verify A", "data A", "data B", "again A", "guest A 1", "guest A 2", "commit all", "deliver"]


def run(words: tuple[str, ...] | list[str], *, shifts: bool = True) -> World:
    """Play a run, judging after each operation and at the end."""
    world = World()
    world.late.refuses_shifts = not shifts
    for word in words:
        OPERATIONS[word](world)
        world._learn()
        world.check()
    world.settle()
    world._learn()
    world.check()
    world.check_settled()
    return world


@pytest.mark.parametrize("length", [3, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("before", [("data A", "commit all", "deliver"), ("data A", "end A 2", "data A")])
def test_every_short_run_ends_as_one_process_would_have_written_it(before: tuple[str, ...], length: int) -> None:
    """P2 to P5, T9, T16, I1: all runs of three operations, and of four, behind two beginnings."""
    for words in product(CORE, repeat=length):
        run(before + words)


@settings(max_examples=examples(400), deadline=None)
@given(words=st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=40), shifts=st.booleans())
def test_long_runs_end_as_one_process_would_have_written_them(words: list[str], shifts: bool) -> None:
    """As above, with coordinators' batches, own markers, commits of a part, and stores that do not shift."""
    run(words, shifts=shifts)


def found_by_short_runs() -> bool:
    for words in product(CORE, repeat=4):
        try:
            run(("data A", *words))
        except AssertionError:
            return True
    return False


def test_a_log_that_does_not_go_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: without it the runs above would prove nothing."""
    monkeypatch.setattr(ProducerStates, "rewind", lambda self, earlier: None)
    assert found_by_short_runs()


def test_a_log_that_takes_what_waits_without_a_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: the batch of an aborted transaction would leave one open for ever (T16)."""
    monkeypatch.setattr(ProducerStates, "_holds", lambda self, guard, header: True)
    assert found_by_short_runs()


def test_a_batch_shifted_by_other_producers_markers_is_answered_where_it_stands() -> None:
    world = run(["data A", "guest B 2", "commit all", "deliver"])
    [(_, ticket, _)] = world.sent
    assert (ticket.error, ticket.base_offset, ticket.last_offset) == (ErrorCode.NONE, 1, 1)


def test_a_late_batch_of_an_aborted_transaction_is_refused() -> None:
    """T16: its guard is gone with the marker. When it comes again, the coordinator refuses it (T15)."""
    world = run(["data A", "commit all", "deliver", "data A", "guest A 1", "commit all", "deliver"])
    assert [ticket.error for _, ticket, _ in world.sent] == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]


def test_the_first_batch_of_the_next_transaction_holds_behind_the_marker_of_the_last() -> None:
    """T16, version 2: the coordinator's answer may reach the producer before its marker reaches this broker."""
    world = run(["data A", "commit all", "deliver", "guest A 2", "data A", "commit all", "deliver"])
    assert [(ticket.error, ticket.base_offset) for _, ticket, _ in world.sent] == [
        (ErrorCode.NONE, 0),
        (ErrorCode.NONE, 2),
    ]


def test_a_verification_for_the_next_transaction_outlives_the_marker_of_the_last() -> None:
    """T16, version 2: as above, with the marker coming between the verification and the batch."""
    world = run(["data A", "commit all", "deliver", "guest A 2", "verify A", "commit all", "deliver", "data A"])
    assert [ticket.error for _, ticket, _ in world.sent] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_repetition_shares_the_fate_of_the_batch_that_waits() -> None:
    """P3: moved with it, refused with it."""
    moved = run(["data A", "again A", "guest B 2", "commit all", "deliver"])
    assert [(ticket.base_offset, ticket.duplicate) for _, ticket, _ in moved.sent] == [(1, False), (1, True)]
    refused = run(["data A", "again A", "guest A 1", "commit all", "deliver"])
    assert {ticket.error for _, ticket, _ in refused.sent} == {ErrorCode.NOT_ENOUGH_REPLICAS}


def test_a_refusal_is_final_only_when_what_it_rests_on_is_durable() -> None:
    world = World()
    world.data(B)
    world.data(A)
    world.guest(A, 1)
    world.commit(None)
    world.deliver()
    [(_, first, _), (_, second, _)] = world.sent
    assert (second.error, second.is_settled, first.is_settled) == (ErrorCode.NOT_ENOUGH_REPLICAS, False, False)
    world.settle()
    assert second.is_settled
    assert first.is_settled


def test_a_log_given_away_refuses_what_waits_and_what_comes() -> None:
    world = World()
    world.data(A)
    world.log.disown("broker 2 leads it")
    world.plain()
    assert {ticket.error for _, ticket, _ in world.sent} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert all(ticket.is_settled for _, ticket, _ in world.sent)
