"""The reading processes of a chaos run, and the reading of whole topics at its end."""

import random
import socket
import time
from typing import Any

import trio
from confluent_kafka import Consumer, TopicPartition

import fencepost
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.records import decode_records
from tests.kit.broker_process import BrokerProcess
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Journal, Log, Place
from tests.kit.wire import FETCH, ConnectionEnded, Wire
from tests.kit.workload_writers import Task

ISOLATION_ON_THE_WIRE = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}
FETCH_VERSION = 11
PAUSE_SECONDS = 0.03
REREAD_CHANCE = 0.01
REBUILT_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def fetch_places(
    wire: Wire, positions: dict[Place, int], isolation: str, limit_bytes: int = 1 << 20
) -> dict[Place, Any]:
    """One Fetch over many partitions -> the answer of each."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in positions.items():
        ask = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit_bytes)
        topics.setdefault(topic, []).append(ask)
    request = FetchRequest(
        max_wait_ms=20,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=ISOLATION_ON_THE_WIRE[isolation],
        topics=[FetchTopic(topic=topic, partitions=asks) for topic, asks in topics.items()],
    )
    response = wire.call(FETCH, FETCH_VERSION, request)
    return {
        (topic.topic, answer.partition_index): answer for topic in response.responses for answer in topic.partitions
    }


def delivered(answer: Any, position: int) -> tuple[int, Log]:
    """What a reader at `position` gets out of a fetch answer, and where it goes on.

    Row I2, written here once more on purpose: the checker does not trust the client's filter.
    """
    data = b"" if answer.records is None else bytes(answer.records)
    coming = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
    aborted: set[int] = set()
    log: Log = []
    start = position
    for at, header in iter_headers(data):
        while coming and coming[0][0] <= header.last_offset:
            aborted.add(coming.pop(0)[1])
        position = max(position, header.next_offset)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            log += [
                (record.offset, (record.value or b"").decode())
                for record in decode_records(data, at, header)
                if record.offset >= start
            ]
    return position, log


class _WireReader:
    """Reads all partitions in one isolation, notes the bounds, and now and then begins again from the start."""

    def __init__(self, isolation: str, places: list[Place], journal: Journal, chance: random.Random) -> None:
        self._isolation = isolation
        self._journal = journal
        self._chance = chance
        self._positions = dict.fromkeys(places, 0)
        self._bounds: dict[Place, tuple[int, int]] = {}
        journal.write("reader", isolation)
        journal.write_many(["pass", *place, 0] for place in places)

    def step(self, wire: Wire) -> None:
        limit_bytes = self._chance.choice((1, 200, 2000, 1 << 20))
        for place, answer in fetch_places(wire, self._positions, self._isolation, limit_bytes).items():
            if answer.error_code != ErrorCode.NONE:
                raise ValueError(f"{place} at {self._positions[place]}: {ErrorCode(answer.error_code).name}")
            bounds = (answer.high_watermark, answer.last_stable_offset)
            if self._bounds.get(place) != bounds:
                self._bounds[place] = bounds
                self._journal.write("bounds", *place, *bounds)
            self._positions[place], log = delivered(answer, self._positions[place])
            self._journal.write_many(["read", *place, *one] for one in log)
            if self._chance.random() < REREAD_CHANCE / len(self._positions):
                self._positions[place] = self._chance.randint(0, self._positions[place])
                self._journal.write("pass", *place, self._positions[place])


def wire_readers(task: Task, places: list[Place]) -> None:
    """Both isolations over the project's codec; a lost connection is made again, the positions stay."""
    readers = [
        _WireReader(isolation, places, Journal(task.journal.with_stem(f"{task.label}-{isolation}")), task.random)
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
    ]
    host, _, port = task.address.rpartition(":")
    while True:
        try:
            with Wire(socket.create_connection((host, int(port)), 5)) as wire:
                while True:
                    for reader in readers:
                        reader.step(wire)
                    time.sleep(PAUSE_SECONDS)
        except (OSError, ConnectionEnded):
            time.sleep(PAUSE_SECONDS)


def confluent_reader(task: Task, places: list[Place], isolation: str) -> None:
    """librdkafka reads along."""
    consumer = _confluent_consumer(task.address, isolation)
    journal = Journal(task.journal)
    journal.write("reader", isolation)
    journal.write_many(["pass", *place, 0] for place in places)
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    while True:
        journal.write_many(
            ["read", record.topic(), record.partition(), record.offset(), record.value().decode()]
            for record in consumer.consume(500, 0.1)
            if record.error() is None
        )


async def own_reader(task: Task, places: list[Place], isolation: str) -> None:
    """The project's own client reads along."""
    journal = Journal(task.journal)
    journal.write("reader", isolation)
    journal.write_many(["pass", *place, 0] for place in places)
    async with (
        fencepost.Client(task.address) as kafka,
        kafka.consumer(*sorted({topic for topic, _ in places}), isolation=isolation) as consumer,
    ):
        while True:
            try:
                async for batch in consumer.batches():
                    journal.write_many(
                        ["read", record.topic, record.partition, record.offset, record.value.decode()]
                        for record in batch
                    )
            except fencepost.RetriableError:  # an object store gave too few bytes, for example
                await trio.sleep(PAUSE_SECONDS)


# At the end


def _confluent_consumer(address: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reads-along",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )


def read_all_by_wire(wire: Wire, places: list[Place], isolation: str) -> tuple[dict[Place, Log], dict[Place, int]]:
    """Every partition from its start to its end, and where that is."""
    logs: dict[Place, Log] = {place: [] for place in places}
    positions = dict.fromkeys(places, 0)
    open_places = set(places)
    while open_places:
        answers = fetch_places(wire, {place: positions[place] for place in open_places}, isolation)
        for place, answer in answers.items():
            assert answer.error_code == ErrorCode.NONE, (place, answer)
            positions[place], log = delivered(answer, positions[place])
            logs[place] += log
            if positions[place] >= answer.last_stable_offset:
                open_places.discard(place)
    return logs, positions


def read_all_by_confluent(
    address: str, ends: dict[Place, int], isolation: str, wait_seconds: float
) -> dict[Place, Log]:
    """The same through librdkafka, up to `ends`."""
    consumer = _confluent_consumer(address, isolation)
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in ends])
    logs: dict[Place, Log] = {place: [] for place in ends}
    deadline = time.monotonic() + wait_seconds
    try:
        while time.monotonic() < deadline:
            for record in consumer.consume(1000, 0.2):
                assert record.error() is None, record.error()
                logs[record.topic(), record.partition()].append((record.offset(), record.value().decode()))
            places = consumer.position([TopicPartition(topic, partition) for topic, partition in ends])
            if all(
                place.offset >= ends[place.topic, place.partition] or not ends[place.topic, place.partition]
                for place in places
            ):
                break
    finally:
        consumer.close()
    return logs


async def read_all_by_own(
    address: str, expected: dict[Place, Log], isolation: str, wait_seconds: float
) -> dict[Place, Log]:
    """The same through the project's own client, until it has as many records as expected, and a moment longer."""
    logs: dict[Place, Log] = {place: [] for place in expected}
    wanted, seen = sum(len(log) for log in expected.values()), 0
    with trio.move_on_after(wait_seconds) as patience:
        async with (
            fencepost.Client(address) as kafka,
            kafka.consumer(*sorted({topic for topic, _ in expected}), isolation=isolation) as consumer,
        ):
            async for batch in consumer.batches(5000):
                for record in batch:
                    logs[record.topic, record.partition].append((record.offset, record.value.decode()))
                seen += len(batch)
                if seen >= wanted:
                    patience.deadline = min(patience.deadline, trio.current_time() + 0.5)
    return logs


def read_everything(
    broker: BrokerProcess, address: str, places: list[Place], wait_seconds: float
) -> dict[str, dict[str, dict[Place, Log]]]:
    """Isolation -> reader -> every partition. The broker is killed for it twice.

    After the second time it has nothing left but the batches themselves: what it makes of them must be the same.
    """
    finals: dict[str, dict[str, dict[Place, Log]]] = {}
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        with Wire(broker.connect()) as wire:
            logs, ends = read_all_by_wire(wire, places, isolation)
        finals[isolation] = {
            "wire": logs,
            "librdkafka": read_all_by_confluent(address, ends, isolation, wait_seconds),
            "own client": trio.run(read_all_by_own, address, logs, isolation, wait_seconds),
        }
    broker.restart()
    _read_again(broker, "wire, after a crash", places, finals)
    broker.kill()
    _forget_what_can_be_rebuilt(broker)
    broker.start()
    _read_again(broker, "wire, from the batches alone", places, finals)
    return finals


def _read_again(
    broker: BrokerProcess, name: str, places: list[Place], finals: dict[str, dict[str, dict[Place, Log]]]
) -> None:
    with Wire(broker.connect()) as wire:
        for isolation, views in finals.items():
            views[name] = read_all_by_wire(wire, places, isolation)[0]


def _forget_what_can_be_rebuilt(broker: BrokerProcess) -> None:
    assert broker.data_dir is not None
    for path in broker.data_dir.rglob("*"):
        if path.suffix in REBUILT_SUFFIXES or path.name == RECOVERY_POINTS:
            path.unlink()
