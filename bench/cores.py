"""All the cores of a machine: a load that asks each partition's leader, and takes little of the CPU itself.

One process has all connections, sends the same bytes again and again, and hardly looks at the answers: Linux discards
most of their bytes uncopied. `load CPU` says what it took nevertheless: on a machine of N cores, N cores of a broker
have what it leaves.
"""

import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bench import workers
from bench.raw import LENGTH, RawConnection, decoded, framed, produce_error
from bench.target import Target
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.batch_header import set_producer
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.registry import API_BY_KEY

PRODUCE, FETCH, METADATA, FIND, INIT, END_TXN = 12, 12, 9, 4, 4, 5
"""Versions of requests."""
PARTITIONS = 8
FETCH_BYTES = 1 << 20
HEAD_BYTES = 64
"""What is read of an answer: the error code is in it."""
SINK = memoryview(bytearray(1 << 20))
DISCARD = socket.MSG_TRUNC if sys.platform == "linux" else 0
TIMEOUT_SECONDS = 30
TRY_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,  # Kafka still completes the last one
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # the topic is new
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,  # the coordinator did not answer the leader in time
)


def leaders(address: str, topic: str) -> list[str]:
    """The address of each partition's leader. Raises TimeoutError if one has none for long."""
    connection, deadline = RawConnection(address), time.monotonic() + TIMEOUT_SECONDS
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    while time.monotonic() < deadline:
        answer = connection.answer_to(ApiKey.METADATA, METADATA, request)
        brokers = {one.node_id: f"{one.host}:{one.port}" for one in answer.brokers}
        found = {one.partition_index: brokers.get(one.leader_id) for one in answer.topics[0].partitions}
        if found and all(found.values()):
            connection.close()
            return [str(found[number]) for number in sorted(found)]
        time.sleep(0.02)
    raise TimeoutError(f"partitions of {topic} have no leader")


class Client(Protocol):
    """What the load drives: one request, or a few, are under way."""

    connections: Sequence[RawConnection]

    def begin(self) -> None:
        """Send the first request of a round."""

    def take(self, connection: RawConnection) -> bool:
        """Receive what has come there; returns whether the round is over."""


def drive(clients: Sequence[Client], rounds: int) -> float:
    """Let all clients do `rounds` together, each one after the other; returns the seconds.

    Raises TimeoutError when nothing comes for half a minute.
    """
    with selectors.DefaultSelector() as selector:
        for client in clients:
            for connection in client.connections:
                connection.register(selector, (client, connection))
        began, left, busy = time.perf_counter(), rounds, 0
        for client in clients[:rounds]:
            client.begin()
            left, busy = left - 1, busy + 1
        while busy:
            ready = selector.select(TIMEOUT_SECONDS)
            if not ready:
                raise TimeoutError(f"no answer within {TIMEOUT_SECONDS} s")
            for key, _ in ready:
                client, connection = key.data
                if not client.take(connection):
                    continue
                if left:
                    left -= 1
                    client.begin()
                else:
                    busy -= 1
        return time.perf_counter() - began


class Repeated(RawConnection):
    """Sends one request again and again; each answer has as many bytes as the first, and no error."""

    def __init__(self, address: str, frame: bytes, error_at: int, first_good: Callable[[memoryview], bool]) -> None:
        """`first_good` says whether an answer is as all later ones must be; `error_at` is where its error code is."""
        super().__init__(address)
        self.connections = [self]
        self._frame, self._error_at = frame, error_at + LENGTH.size
        self._head, self._left = memoryview(bytearray(HEAD_BYTES)), 0
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:  # a new topic may need a moment to find its leader
            self.send(frame)
            answer = self.receive()
            if first_good(answer):
                break
            if time.monotonic() > deadline:
                raise TimeoutError("the broker does not answer as it should")
            time.sleep(0.02)
        self.size = len(answer)

    def begin(self) -> None:
        self.send(self._frame)

    def take(self, connection: RawConnection) -> bool:
        if self._left:
            self._left -= self._socket.recv_into(SINK, min(self._left, len(SINK)), DISCARD)
            return not self._left
        have, at = self._socket.recv_into(self._head), self._error_at
        if have < at + 2 or LENGTH.unpack_from(self._head)[0] != self.size or self._head[at] or self._head[at + 1]:
            raise RuntimeError(f"an answer of {self.size} bytes was awaited, this came: {self._head[:have].hex()}")
        self._left = LENGTH.size + self.size - have
        return not self._left


def produce_frame(topic: str, parts: dict[int, bytes], transactional_id: str | None = None) -> bytes:
    """A batch for each partition, acks=all."""
    data = [PartitionProduceData(index=number, records=batch) for number, batch in parts.items()]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    return framed(API_BY_KEY[ApiKey.PRODUCE], PRODUCE, request)


def producer(address: str, topic: str, partition: int, size_bytes: int, count: int) -> Repeated:
    """Sends a batch of `count` records of `size_bytes`."""
    batch = bytes(build_batch([(int(time.time() * 1000), None, bytes(size_bytes), ())] * count))
    error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4  # ids and tags, topics, name, partitions, partition
    return Repeated(
        address,
        produce_frame(topic, {partition: batch}),
        error_at,
        lambda answer: not produce_error(answer, PRODUCE),
    )


def fetcher(address: str, topic: str, partition: int) -> Repeated:
    """Reads the first MiB."""
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=1,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    api = API_BY_KEY[ApiKey.FETCH]
    error_at = 4 + 1 + 4  # ids and tags, throttling
    return Repeated(
        address,
        framed(api, FETCH, request),
        error_at,
        lambda answer: len(decoded(api, FETCH, answer).responses[0].partitions[0].records or b"") > FETCH_BYTES / 2,
    )


class Transactor:
    """A producer that commits one transaction after the other: a record for each partition, then EndTxn (KIP-890)."""

    def __init__(self, target: Target, topic: str, of_leader: dict[str, list[int]]) -> None:
        self._id = f"bench-{os.urandom(6).hex()}"
        first = RawConnection(target.address)
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id])
        found = self._until_good(lambda: first.answer_to(ApiKey.FIND_COORDINATOR, FIND, request).coordinators[0])
        first.close()
        coordinator = f"{found.host}:{found.port}"
        by_address = {address: RawConnection(address) for address in {*of_leader, coordinator}}
        self.connections = list(by_address.values())
        self._coordinator = by_address[coordinator]
        init = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000)
        made = self._until_good(lambda: self._coordinator.answer_to(ApiKey.INIT_PRODUCER_ID, INIT, init))
        self._producer = made.producer_id, made.producer_epoch
        self._batch = build_batch(
            [(int(time.time() * 1000), None, bytes(100), ())],
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        self._frames: dict[RawConnection, tuple[bytearray, list[int]]] = {}
        """What each leader gets, and where the batches are in it."""
        for address, numbers in of_leader.items():
            batch = bytes(self._batch)
            frame = bytearray(produce_frame(topic, dict.fromkeys(numbers, batch), self._id))
            places = [at for at in range(len(frame)) if frame.startswith(batch, at)]
            self._frames[by_address[address]] = frame, places
        self._waiting: set[RawConnection] = set()
        self._asked_at = 0.0
        self.ends: list[float] = []
        """Seconds of each EndTxn."""

    @staticmethod
    def _until_good(ask: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (answer := ask()).error_code:
            if time.monotonic() > deadline:
                raise RuntimeError(f"refused with error {answer.error_code}")
            time.sleep(0.02)
        return answer

    def begin(self) -> None:
        for connection, (frame, places) in self._frames.items():
            for at in places:
                frame[at : at + len(self._batch)] = self._batch
            connection.send(frame)
        self._waiting = set(self._frames)

    def take(self, connection: RawConnection) -> bool:
        answer = connection.receive()
        if not self._waiting:
            return self._ended(decoded(API_BY_KEY[ApiKey.END_TXN], END_TXN, answer))
        code = produce_error(answer, PRODUCE)
        if code in TRY_AGAIN:
            connection.send(self._frames[connection][0])
            return False
        if code:
            raise RuntimeError(f"produce was answered with error {code}")
        self._waiting.remove(connection)
        if not self._waiting:
            producer_id, epoch = self._producer
            request = EndTxnRequest(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True
            )
            self._asked_at = time.perf_counter()
            self._coordinator.send(framed(API_BY_KEY[ApiKey.END_TXN], END_TXN, request))
        return False

    def _ended(self, answer: Any) -> bool:
        self.ends.append(time.perf_counter() - self._asked_at)
        if answer.error_code:
            raise RuntimeError(f"EndTxn was answered with error {answer.error_code}")
        self._producer = answer.producer_id, answer.producer_epoch
        set_producer(self._batch, 0, answer.producer_id, answer.producer_epoch, 0)
        return True


def _measured(
    target: Target, clients: Sequence[Client], rounds: int, unit: str, per_round: float = 1
) -> tuple[dict[str, float], float]:
    """What one of `unit` cost, of which a round has `per_round`, and the seconds of all rounds."""
    before, own = target.cpu_seconds(), time.process_time()
    elapsed = drive(clients, rounds)
    own, after = time.process_time() - own, target.cpu_seconds()
    for client in clients:
        for connection in client.connections:
            connection.close()
    result = {f"load CPU ms per {unit}": own / rounds / per_round * 1e3}
    if before is not None and after is not None:
        result[f"broker CPU ms per {unit}"] = (after - before) / rounds / per_round * 1e3
    return result, elapsed


def _topic(target: Target) -> tuple[str, list[str]]:
    topic = f"bench-{os.urandom(4).hex()}"
    workers.create_topic(target.address, topic, PARTITIONS)
    return topic, leaders(target.address, topic)


def fetches(rounds: int) -> Callable[[Target, float], dict[str, float]]:
    """A connection for each partition reads its first MiB again and again."""

    def run(target: Target, scale: float) -> dict[str, float]:
        topic, of = _topic(target)
        for number, leader in enumerate(of):
            written = producer(leader, topic, number, 1024, 64)
            drive([written], 2 * FETCH_BYTES // (64 << 10))
            written.close()
        clients = [fetcher(leader, topic, number) for number, leader in enumerate(of)]
        drive(clients, len(clients))
        count, share = int(rounds * scale), clients[0].size / 1e6
        result, elapsed = _measured(target, clients, count, "MB", share)
        return {"MB/s": count * share / elapsed} | result

    return run


def produces(rounds: int) -> Callable[[Target, float], dict[str, float]]:
    """A connection for each partition sends batches of 128 records of 1 KiB."""

    def run(target: Target, scale: float) -> dict[str, float]:
        topic, of = _topic(target)
        clients = [producer(leader, topic, number, 1024, 128) for number, leader in enumerate(of)]
        count, share = int(rounds * scale), 128 * 1024 / 1e6
        result, elapsed = _measured(target, clients, count, "MB", share)
        return {"MB/s": count * share / elapsed} | result

    return run


def acknowledgements(rounds: int, connections: int = 32) -> Callable[[Target, float], dict[str, float]]:
    """Each connection has one record of 100 bytes under way, to one of the partitions."""

    def run(target: Target, scale: float) -> dict[str, float]:
        topic, of = _topic(target)
        numbers = [number % PARTITIONS for number in range(connections)]
        clients = [producer(of[number], topic, number, 100, 1) for number in numbers]
        drive(clients, 30 * connections)
        count = int(rounds * scale)
        result, elapsed = _measured(target, clients, count, "ack")
        return {"acks/s": count / elapsed} | result

    return run


def transactions(
    rounds: int, producers: int, partitions: int = PARTITIONS
) -> Callable[[Target, float], dict[str, float]]:
    """Each producer commits one transaction after the other, a record of 100 bytes for each of some partitions."""

    def run(target: Target, scale: float) -> dict[str, float]:
        topic, of = _topic(target)
        clients = []
        for first in range(producers):
            led: dict[str, list[int]] = {}
            for number in range(first, first + partitions):
                led.setdefault(of[number % PARTITIONS], []).append(number % PARTITIONS)
            clients.append(Transactor(target, topic, led))
        drive(clients, max(30, 5 * producers))
        for client in clients:
            client.ends.clear()
        count = max(30, int(rounds * scale))
        result, elapsed = _measured(target, clients, count, "transaction")
        ends = sorted(seconds for client in clients for seconds in client.ends)
        shares = {"p50": 0.5, "p99": 0.99}
        return (
            {"transactions/s": count / elapsed}
            | {f"ms {name} of EndTxn": ends[int(len(ends) * share)] * 1e3 for name, share in shares.items()}
            | result
        )

    return run
