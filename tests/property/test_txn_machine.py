"""One transactional id under any order of commands, zombies, copies and crashes (rows P12, T2, T7, T10, T13, T23)."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.coordinator.txn import codec, machine
from fencepost.coordinator.txn.commands import (
    AddPartitions,
    Answer,
    Command,
    Complete,
    EndTxn,
    InitProducerId,
    NeedsProducerId,
    TimeOut,
)
from fencepost.coordinator.txn.state import (
    DEAD,
    Dead,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    TxnRecord,
    TxnState,
    holder,
    marker_of,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.examples import examples
from tests.unit.txn.kit import P0, P1, Data, Partition

pytestmark = pytest.mark.long

TX = "orders"
NONE = ErrorCode.NONE
CLIENT = st.sampled_from([0, 0, 0, 0, 1, 2])


@dataclass
class Client:
    """A producer, which may long be a zombie, and what it believes to have in its transaction."""

    version: int
    producer_id: int
    epoch: int
    values: list[str] = field(default_factory=list)


def at_epoch(state: TxnState, epoch: int) -> TxnState:
    """As if the id had been used very often."""
    assert not isinstance(state, Dead)
    return replace(state, producer=replace(state.producer, epoch=epoch))


def still_open(partition: Partition) -> list[str]:
    """The values whose transaction has no marker in the partition."""
    return [
        entry.value
        for offset, entry in enumerate(partition.entries)
        if isinstance(entry, Data) and offset >= partition.open.get(entry.producer_id, len(partition.entries))
    ]


class TransactionalId(RuleBasedStateMachine):
    """Does what the shell does, one step at a time, with crashes between any two steps."""

    @initialize(server_version=st.integers(0, 2), epoch=st.sampled_from([0, 0, 32_760]))
    def begin(self, server_version: int, epoch: int) -> None:
        self.server_version = server_version
        self.state: TxnState = DEAD
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.durable = 0
        self.partitions = {P0: Partition(), P1: Partition()}
        self.duty: frozenset[TopicPartition] | None = None
        """The partitions that lack their marker."""
        self.next_id = 1
        self.written = 0
        self.open_values: list[str] = []
        self.decided: dict[str, bool] = {}
        self.clients: list[Client] = []
        self.requests: list[EndTxn] = []
        if epoch:
            self.ask(InitProducerId(60_000))
            self.append(TxnRecord(TX, at_epoch(self.state, epoch)))

    # The shell

    def append(self, record: TxnRecord) -> None:
        self.log.append(codec.encode(record, max(self.server_version, 1)))
        if isinstance(record.state, PrepareCommit | PrepareAbort):
            for value in self.open_values:
                assert value not in self.decided, "a decision is taken once"
                self.decided[value] = isinstance(record.state, PrepareCommit)
            self.open_values = []
        self.state = record.state

    def decide(self, command: Command) -> Answer:
        decision = machine.decide(TX, self.state, command, 1_000, self.server_version)
        if isinstance(decision.reply, NeedsProducerId):
            self.next_id += 1
            assert isinstance(command, InitProducerId | EndTxn | TimeOut)
            return self.decide(replace(command, fresh_producer_id=self.next_id))
        for record in decision.log:
            self.append(record)
            if isinstance(record.state, PrepareCommit | PrepareAbort):
                assert self.duty is None, "one transaction is completed at a time"
                self.duty = record.state.partitions
        return decision.reply

    def ask(self, command: Command) -> Answer:
        """Until there is an answer; what it rests on is durable then."""
        answer = self.decide(command)
        if self.duty is not None and (answer.error is NONE or answer.error is ErrorCode.CONCURRENT_TRANSACTIONS):
            self.durable = len(self.log)
            self.finish()
        self.durable = len(self.log)
        return self.ask(command) if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS else answer

    def finish(self) -> None:
        while self.duty is not None:
            self.write_one_marker()

    def mark(self, partition: TopicPartition) -> None:
        assert self.duty is not None
        assert isinstance(self.state, PrepareCommit | PrepareAbort)
        error = self.partitions[partition].mark(marker_of(self.state, 0))
        assert error is NONE, f"{partition} refuses the marker of {self.state}: {error.name}"
        self.duty -= {partition}

    # What may happen

    def client(self, which: int) -> Client:
        """One of the last three to come; the newest is asked for most often."""
        if not self.clients:
            self.newcomer(2)
        return self.clients[-1 - which % len(self.clients)]

    @rule(version=st.sampled_from([0, 2, 2]))
    def newcomer(self, version: int) -> None:
        before = list(self.open_values)
        answer = self.ask(InitProducerId(60_000))
        assert all(self.decided[value] is False for value in before), "what the one before left open is aborted"
        self.clients.append(self.owner(Client(version, -1, -1), answer))

    @rule(which=CLIENT)
    def bump(self, which: int) -> None:
        """KIP-360."""
        client = self.client(which)
        answer = self.ask(InitProducerId(60_000, (client.producer_id, client.epoch)))
        if answer.error is NONE:
            self.owner(client, answer)

    def owner(self, client: Client, answer: Answer) -> Client:
        assert answer.error is NONE
        client.producer_id, client.epoch, client.values = answer.producer_id, answer.epoch, []
        assert not isinstance(self.state, Dead)
        assert holder(self.state) == (client.producer_id, client.epoch)
        assert answer.epoch <= 32766, "the last epoch is never a client's"
        return client

    @rule(version=st.sampled_from([0, 2, 2]), two_phase=st.booleans())
    def recover(self, version: int, two_phase: bool) -> None:
        """Row T23: a successor that keeps the transaction takes nothing from it and gives nothing to it."""
        before, values = self.state, list(self.open_values)
        answer = self.ask(InitProducerId(2**31 - 1 if two_phase else 60_000, keep_prepared=True))
        client = self.owner(Client(version, -1, -1), answer)
        assert self.open_values == values, "what is open stays open"
        if isinstance(before, Ongoing):
            assert answer.ongoing == (before.producer.producer_id, before.producer.epoch)
            client.values = values
        else:
            assert answer.ongoing == (-1, -1)
        self.clients.append(client)

    @rule(which=CLIENT, partition=st.sampled_from([P0, P1]))
    def write(self, which: int, partition: TopicPartition) -> None:
        client = self.client(which)
        added = self.ask(AddPartitions(client.producer_id, client.epoch, frozenset({partition}), client.version))
        if added.error is not NONE:
            return
        assert isinstance(self.state, Ongoing)
        assert not self.state.is_kept, "a kept transaction takes no more records"
        assert holder(self.state) == (client.producer_id, client.epoch)
        self.written += 1
        value = str(self.written)
        assert self.partitions[partition].append(client.producer_id, client.epoch, value) is NONE
        self.open_values.append(value)
        client.values.append(value)

    @rule(which=CLIENT, commit=st.booleans(), lost=st.booleans())
    def end(self, which: int, commit: bool, lost: bool) -> None:
        """`lost`: the client never hears the answer, and asks again whenever it likes (see `late_copy`)."""
        client = self.client(which)
        request = EndTxn(client.producer_id, client.epoch, commit, client.version)
        self.requests.append(request)
        answer = self.ask(request)
        if answer.error is NONE and not lost:
            if client.version == 2:
                for value in client.values:
                    assert self.decided[value] is commit, "what the client was told is what happened"
            client.producer_id, client.epoch, client.values = answer.producer_id, answer.epoch, []

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 3))
    def late_copy(self, which: int) -> None:
        """KAFKA-17754: with TV2 an old EndTxn touches no transaction but the one it was made for."""
        request = self.requests[-1 - which % len(self.requests)]
        before = self.state
        self.ask(request)
        if request.client_version == 2 and isinstance(before, Ongoing) and self.state != before:
            assert holder(before) == (request.producer_id, request.epoch)

    @precondition(lambda self: isinstance(self.state, Ongoing))
    @rule()
    def time_out(self) -> None:
        assert isinstance(self.state, Ongoing)
        self.decide(TimeOut(self.state.producer.producer_id, self.state.producer.epoch))

    @rule(which=CLIENT, commit=st.booleans())
    def end_without_waiting(self, which: int, commit: bool) -> None:
        """The decision is taken, and then the power may fail at any step; the client never hears of it."""
        client = self.client(which)
        self.decide(EndTxn(client.producer_id, client.epoch, commit, client.version))

    @precondition(lambda self: self.duty is not None)
    @rule()
    def write_one_marker(self) -> None:
        """One marker, or the Complete record when none is owed; a marker waits until its Prepare record is durable."""
        assert self.duty is not None
        self.durable = max(self.durable, len(self.log))
        if self.duty:
            self.mark(min(self.duty))
        else:
            self.duty = None
            self.decide(Complete())

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """What is not durable may be lost, from the end; then replay, and decided transactions are rolled forward."""
        kept = data.draw(st.integers(self.durable, len(self.log)))
        lost_a_decision = any(isinstance(state, PrepareCommit | PrepareAbort) for state in self.states(self.log[kept:]))
        del self.log[kept:]
        self.state = DEAD
        for state in self.states(self.log):
            self.state = state
        self.duty = None
        if isinstance(self.state, PrepareCommit | PrepareAbort):
            self.duty = self.state.partitions
        if lost_a_decision:
            # No marker was written and no answer given: the transaction, where there was one, is open again.
            self.open_values = sorted((v for part in self.partitions.values() for v in still_open(part)), key=int)
            assert isinstance(self.state, Ongoing) or not self.open_values
            for value in self.open_values:
                self.decided.pop(value, None)

    def states(self, records: list[tuple[bytes | None, bytes | None]]) -> list[TxnState]:
        decoded = [codec.decode(key, value) for key, value in records]
        return [record.state for record in decoded if record is not None]

    # What must hold

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        states = self.states(self.log[-1:]) if hasattr(self, "log") else []
        assert not states or states[-1] == self.state

    @invariant()
    def no_reader_sees_what_is_not_committed_or_only_part_of_it(self) -> None:
        for partition in getattr(self, "partitions", {}).values():
            assert all(self.decided.get(value) is True for value in partition.committed())

    def teardown(self) -> None:
        """Every decision reaches every partition: committed values are all there, in order, and nothing else is."""
        if not hasattr(self, "partitions"):
            return
        self.ask(InitProducerId(60_000))
        for partition in self.partitions.values():
            written = [entry.value for entry in partition.entries if isinstance(entry, Data)]
            assert partition.committed() == [value for value in written if self.decided[value]]
            assert not partition.open, "no transaction hangs"


TransactionalId.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestTransactionalId = TransactionalId.TestCase
