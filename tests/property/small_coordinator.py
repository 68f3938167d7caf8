"""The transaction coordinator and two partitions as the client meets them, one request at a time."""

from dataclasses import dataclass, replace

from fencepost.client.core.txn_state import NO_PRODUCER, AskEnd, AskInit, Response
from fencepost.coordinator.txn import codec, machine
from fencepost.coordinator.txn import commands as coordinator
from fencepost.coordinator.txn.state import DEAD, Dead, Ongoing, PrepareAbort, PrepareCommit, TxnRecord, marker_of
from fencepost.coordinator.txn.state import TxnState as CoordinatorState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.txn.kit import P0, P1, Data, Partition

TX = "orders"
NONE = ErrorCode.NONE


@dataclass(frozen=True)
class Write:
    """A batch on its way: under TV2 it joins its partition to the transaction, under TV1 that was asked before."""

    producer: tuple[int, int]
    tv2: bool
    partition: TopicPartition
    value: str


class Broker:
    """The transaction coordinator and two partitions, one request at a time."""

    def __init__(self, server_version: int, epoch: int) -> None:
        self.server_version = server_version
        self.state: CoordinatorState = DEAD
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.partitions = {P0: Partition(), P1: Partition()}
        self.duty: frozenset[TopicPartition] | None = None
        """The partitions that lack their marker."""
        self.ids_given = 0
        self.decided: dict[str, bool] = {}
        self.loading = 0
        if epoch:
            self.ask(coordinator.InitProducerId(60_000))
            assert not isinstance(self.state, Dead)
            producer = replace(self.state.producer, epoch=epoch)
            self._append(TxnRecord(TX, replace(self.state, producer=producer)))

    def _append(self, record: TxnRecord) -> None:
        self.log.append(codec.encode(record, max(self.server_version, 1)))
        if isinstance(record.state, PrepareCommit | PrepareAbort):
            for value in self.open_values():
                assert value not in self.decided, "a decision is taken once"
                self.decided[value] = isinstance(record.state, PrepareCommit)
        self.state = record.state

    def open_values(self) -> list[str]:
        """What is in the partitions without a marker behind it, and not decided."""
        return [
            entry.value
            for partition in self.partitions.values()
            for offset, entry in enumerate(partition.entries)
            if isinstance(entry, Data)
            and offset >= partition.open.get(entry.producer_id, len(partition.entries))
            and entry.value not in self.decided
        ]

    def ask(self, command: coordinator.Command) -> coordinator.Answer:
        """One decision; its record is durable before the answer leaves."""
        decision = machine.decide(TX, self.state, command, 1_000, self.server_version)
        if isinstance(decision.reply, coordinator.NeedsProducerId):
            self.ids_given += 1
            assert isinstance(command, coordinator.InitProducerId | coordinator.EndTxn | coordinator.TimeOut)
            return self.ask(replace(command, fresh_producer_id=1 + self.ids_given))
        for record in decision.log:
            self._append(record)
            if isinstance(record.state, PrepareCommit | PrepareAbort):
                assert self.duty is None, "one transaction is completed at a time"
                self.duty = record.state.partitions
        if decision.reply.after_markers and not decision.log:
            self.finish()
        return decision.reply

    def one_marker(self) -> None:
        assert self.duty is not None
        if self.duty:
            assert isinstance(self.state, PrepareCommit | PrepareAbort)
            partition = min(self.duty)
            assert self.partitions[partition].mark(marker_of(self.state, 0)) is NONE
            self.duty -= {partition}
        else:
            self.duty = None
            self.ask(coordinator.Complete())

    def finish(self) -> None:
        while self.duty is not None:
            self.one_marker()

    def reload(self) -> None:
        """It dies and comes back: its state is the fold of its log, and owed markers are written again."""
        self.state = DEAD
        for key, value in self.log:
            record = codec.decode(key, value)
            assert record is not None
            self.state = record.state
        self.duty = self.state.partitions if isinstance(self.state, PrepareCommit | PrepareAbort) else None

    def add(self, producer: tuple[int, int], partition: TopicPartition, version: int) -> ErrorCode:
        if self.loading:
            self.loading -= 1
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.ask(coordinator.AddPartitions(*producer, frozenset({partition}), version)).error

    def write(self, write: Write) -> ErrorCode:
        """A batch arrives. One that is there already is recognised by its sequence (row P3), once it may be written."""
        if write.tv2:
            code = self.add(write.producer, write.partition, 2)
            if code is not NONE:
                return code
        elif not isinstance(self.state, Ongoing) or write.partition not in self.state.partitions:
            return ErrorCode.INVALID_TXN_STATE  # row T15
        partition = self.partitions[write.partition]
        if any(isinstance(entry, Data) and entry.value == write.value for entry in partition.entries):
            return NONE
        return partition.append(*write.producer, write.value)

    def answer(self, ask: AskInit | AskEnd) -> Response:
        if self.loading:
            self.loading -= 1
            return Response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(ask, AskEnd):
            said = self.ask(coordinator.EndTxn(*ask.producer, ask.commit, 2 if ask.tv2 else 0))
        else:
            said = self.ask(coordinator.InitProducerId(60_000, None if ask.producer == NO_PRODUCER else ask.producer))
        with_identity = isinstance(ask, AskInit) or ask.tv2
        return Response(
            said.error, (said.producer_id, said.epoch) if with_identity and said.error is NONE else NO_PRODUCER
        )
