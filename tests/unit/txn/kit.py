"""In-memory ports for the transaction coordinator: logs that can lose their tail, partitions with Kafka's rules."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio
import trio.testing

from fencepost.coordinator.ports import HowEnded, Marker, RemoteCoordinators
from fencepost.coordinator.txn.commands import Answer, EndTxn, resolve
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import VirtualClock
from tests.kit.memory_log import CoordinatorLogs

TX = "orders"
P0, P1, P2 = (TopicPartition("flights", number) for number in range(3))


@dataclass
class Data:
    """A transactional batch in a partition."""

    producer_id: int
    epoch: int
    value: str


@dataclass
class Partition:
    """A partition's log with the producer rules that transactions need (rows P4, T9, T16, T25)."""

    entries: list[Data | Marker] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """By producer id, where its open transaction begins."""

    def append(self, producer_id: int, epoch: int, value: str) -> ErrorCode:
        if epoch < self.epochs.get(producer_id, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, len(self.entries))
        self.entries.append(Data(producer_id, epoch, value))
        return ErrorCode.NONE

    def mark(self, marker: Marker) -> ErrorCode:
        producer_id, epoch, version = marker.producer_id, marker.producer_epoch, marker.transaction_version
        current = self.epochs.get(producer_id, -1)
        is_retry = epoch == current and producer_id not in self.open
        if epoch < current or (version >= 2 and epoch == current and not is_retry):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if version >= 2 and is_retry:
            return ErrorCode.NONE
        self.epochs[producer_id] = epoch
        self.open.pop(producer_id, None)
        self.entries.append(marker)
        return ErrorCode.NONE

    @property
    def stable_end(self) -> int:
        """The last stable offset (row I1)."""
        return min(self.open.values(), default=len(self.entries))

    def committed(self) -> list[str]:
        """What a read_committed reader sees."""
        pending: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        seen: list[tuple[int, str]] = []
        for offset, entry in enumerate(self.entries[: self.stable_end]):
            if isinstance(entry, Data):
                pending[entry.producer_id].append((offset, entry.value))
            else:
                decided = pending.pop(entry.producer_id, [])
                seen += decided if entry.commit else []
        return [value for _, value in sorted(seen)]


class Cluster:
    """Partitions, and the MarkerWriter over them.

    `delay` seconds pass before each marker. `answers` are told first, one dict a round, then the truth. `gate` holds
    all rounds. `at_once`: without delay and gate, markers are durable when they are appended. `joins`: those that may
    be durable before the decision share its round, see `Appended`.
    """

    def __init__(self, *partitions: TopicPartition, delay: float = 0.0) -> None:
        self.partitions = {name: Partition() for name in partitions or (P0, P1, P2)}
        self.delay = delay
        self.answers: list[dict[TopicPartition, ErrorCode]] = []
        self.rounds: list[tuple[Marker, frozenset[TopicPartition]]] = []
        self.gate: trio.Event | None = None
        self.at_once = False
        self.joins = False
        self.is_opening = False
        """Whether some partitions cannot be read yet."""

    def append_with_decision(
        self, marker: Marker, partitions: Collection[TopicPartition], may_be_first: bool
    ) -> "Appended | None":
        at_once = self.at_once and not self.joins and self.gate is None and not self.delay
        return Appended(self, marker, sorted(partitions), at_once) if may_be_first and (self.joins or at_once) else None

    def how_ended(self, producer_id: int, marker_epoch: int, partitions: Collection[TopicPartition]) -> HowEnded:
        for name in partitions:
            for entry in self.partitions[name].entries:
                if isinstance(entry, Marker) and entry[:2] == (producer_id, marker_epoch):
                    return HowEnded.COMMITTED if entry.commit else HowEnded.ABORTED
        return HowEnded.UNKNOWN if self.is_opening else HowEnded.NOT_ENDED

    async def write_markers(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        assert marker.coordinator_epoch == 0
        self.rounds.append((marker, frozenset(partitions)))
        if self.gate is not None:
            await self.gate.wait()
        told = self.answers.pop(0) if self.answers else {}
        written: dict[TopicPartition, ErrorCode] = {}
        for name in sorted(partitions):
            if self.delay:
                await trio.sleep(self.delay)
            written[name] = told[name] if name in told else self._mark(name, marker)
        return written

    def _mark(self, name: TopicPartition, marker: Marker) -> ErrorCode:
        partition = self.partitions.get(name)
        if name.topic == "__consumer_offsets":
            partition = self.partitions.setdefault(name, Partition())
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partition.mark(marker)

    def exists(self, partition: TopicPartition) -> bool:
        return partition in self.partitions

    def topic_name(self, topic_id: bytes) -> str | None:
        raise AssertionError("the transaction coordinator knows topics by name")

    def topic_id(self, topic: str) -> bytes | None:
        raise AssertionError("the transaction coordinator knows topics by name")


class Appended:
    """Markers in the round of their decision: that of the first partition is durable at once, the others later, unless
    they are `at_once`, too."""

    in_one_commit = False

    def __init__(self, cluster: Cluster, marker: Marker, names: list[TopicPartition], at_once: bool) -> None:
        count = len(names) if at_once else 1
        self._cluster, self._marker, self._left, self._at_once = cluster, marker, names[count:], at_once
        assert marker.coordinator_epoch == 0
        if names:
            cluster.rounds.append((marker, frozenset(names)))
        told = cluster.answers.pop(0) if at_once and names and cluster.answers else {}
        self.results = {name: told[name] if name in told else cluster._mark(name, marker) for name in names[:count]}

    def settled_now(self) -> dict[TopicPartition, ErrorCode] | None:
        return self.results if self._at_once else None

    async def settled(self) -> dict[TopicPartition, ErrorCode]:
        if self._cluster.gate is not None:
            await self._cluster.gate.wait()
        for name in self._left:
            if self._cluster.delay:
                await trio.sleep(self._cluster.delay)
            self.results[name] = self._cluster._mark(name, self._marker)
        return self.results


class ProducerIds:
    """Producer ids in order, each with a checkpoint, as a real source may have one."""

    def __init__(self, first: int = 1) -> None:
        self.next = first

    async def next_producer_id(self) -> int:
        await trio.lowlevel.checkpoint()
        self.next += 1
        return self.next - 1


class World:
    """One coordinator over memory, which can be stopped dead and started again on what was durable."""

    def __init__(self, *, config: TxnConfig | None = None, log_delay: float = 0.0, marker_delay: float = 0.0) -> None:
        self.config = config or TxnConfig()
        self.logs = CoordinatorLogs(delay=log_delay)
        self.cluster = Cluster(delay=marker_delay)
        self.ids = ProducerIds()
        self.clock = VirtualClock()
        self.others: RemoteCoordinators | None = None
        self.service: TransactionCoordinator
        self._connections: set[trio.CancelScope] = set()
        self._scope = trio.CancelScope()

    async def start(self, nursery: trio.Nursery) -> TransactionCoordinator:
        self.service = TransactionCoordinator(
            logs=self.logs,
            markers=self.cluster,
            producer_ids=self.ids,
            topics=self.cluster,
            clock=self.clock,
            config=self.config,
            others=self.others,
        )
        await self.service.start()
        self._scope = trio.CancelScope()

        async def run(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            with self._scope:
                await self.service.run(task_status)

        await nursery.start(run)
        return self.service

    @contextmanager
    def connection(self) -> Iterator[trio.CancelScope]:
        """What a client's request runs in: a power cut breaks it."""
        with trio.CancelScope() as scope:
            self._connections.add(scope)
            try:
                yield scope
            finally:
                self._connections.discard(scope)

    async def crash(self, nursery: trio.Nursery) -> TransactionCoordinator:
        """Cut the power and start again."""
        self._scope.cancel()
        for scope in self._connections:
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        self.logs = self.logs.survivors()
        self.cluster.gate = None
        return await self.start(nursery)


async def end_txn(
    service: TransactionCoordinator, name: str, producer_id: int, epoch: int, commit: bool, *, client_version: int
) -> Answer:
    """EndTxn, and await the answer."""
    return await resolve(service.submit(name, EndTxn(producer_id, epoch, commit, client_version), None))


async def begin(world: World, *partitions: TopicPartition, version: int = 2, value: str = "x") -> tuple[int, int]:
    """A producer with an open transaction and a record on each partition."""
    answer = await world.service.init_producer_id(TX, 60_000)
    await write(world, answer.producer_id, answer.epoch, *(partitions or (P0,)), version=version, value=value)
    return answer.producer_id, answer.epoch


async def write(
    world: World, producer_id: int, epoch: int, *partitions: TopicPartition, version: int = 2, value: str = "x"
) -> None:
    """Add the partitions in the way of the version, and append a record to each."""
    if version < 2:
        added = await world.service.add_partitions(TX, producer_id, epoch, partitions)
        assert set(added.values()) == {ErrorCode.NONE}
    codes = await world.service.ensure_partitions(TX, producer_id, epoch, partitions, add=version >= 2)
    assert set(codes.values()) == {ErrorCode.NONE}
    for partition in partitions:
        assert world.cluster.partitions[partition].append(producer_id, epoch, value) is ErrorCode.NONE


def committed(world: World, partition: TopicPartition = P0) -> list[str]:
    """What a read_committed reader sees there."""
    return world.cluster.partitions[partition].committed()
