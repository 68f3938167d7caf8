"""The short way for Produce gives the answers of the general way, byte for byte, and steps aside where it must."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.handlers import api00_produce
from fencepost.broker.network.answers import Answer, answer_of
from fencepost.broker.network.context import Endpoint, RequestContext
from fencepost.broker.network.repeated_produce import KNOWN_MAX, PREFIX_LENGTHS_MAX, SINCE, RepeatedProduce
from fencepost.broker.node import Node
from fencepost.coordinator.metadata.commands import NewTopic, TopicRef
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header, read_response_header, write_request_header
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

PRODUCE = API_BY_KEY[0]
NOW_MS = 1_700_000_000_000
VERSIONS = range(SINCE, PRODUCE.served[1] + 1)


class Clock:
    """Stands still."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


def entropy() -> Callable[[int], bytes]:
    """Random bytes that are the same in every node."""
    drawn = iter(range(1, 1 << 16))
    return lambda count: next(drawn).to_bytes(4, "big").rjust(count, b"\x7f")


async def started(nursery: trio.Nursery) -> Node:
    """A broker in memory with the topic t of two partitions."""
    config = load_config(flags={"storage": "memory", "listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, Clock(), entropy())
    await nursery.start(node.run)
    await node.metadata.create_topics([NewTopic("t", 2)])
    return node


def batch(value: bytes = b"v", **more: Any) -> bytes:
    return bytes(build_batch([(NOW_MS, b"k", value, ())], **more))


def frame(node: Node, version: int, records: bytes, correlation_id: int = 1, *, partition: int = 0, **more: Any) -> Any:
    topic_id = node.metadata.image.topics_by_name["t"].topic_id
    part = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=[part])
    request = ProduceRequest(**{"acks": -1, "timeout_ms": 1000, "topic_data": [topic], **more})
    head = write_request_header(PRODUCE, version, correlation_id, "client")
    return memoryview(bytearray(head + PRODUCE.request.encode(request, version)))


def decoded(asked: memoryview) -> tuple[Any, RequestContext]:
    header = read_request_header(asked)
    request, _ = PRODUCE.request.decode_prefix(asked, header.api_version, header.body_start)
    where = Endpoint("h", 1)
    return request, RequestContext(0, header.api_version, header.correlation_id, header.client_id, "127.0.0.1", where)


def in_general(node: Node, asked: memoryview) -> tuple[Any, RequestContext, Answer]:
    request, context = decoded(asked)
    reply = api00_produce.handle(node, request, context)
    return request, context, answer_of(PRODUCE, context.api_version, context.correlation_id, reply)


def taught(node: Node, *asked: memoryview) -> RepeatedProduce:
    """The short way, after these requests went the general way."""
    short = RepeatedProduce(node)
    for one in asked:
        request, context, _ = in_general(node, one)
        short.learn(one, request, context)
    return short


def read(answer: Answer) -> Any:
    """The one partition in an answer."""
    joined = b"".join(answer.parts)
    assert answer.size_bytes == len(joined) == int.from_bytes(joined[:4], "big") + 4
    for version in reversed(VERSIONS):
        try:
            _, start = read_response_header(PRODUCE, version, joined, 4)
            return PRODUCE.response.decode(joined, version, start).responses[0].partition_responses[0]
        except ValueError:
            continue
    raise AssertionError("no version reads the answer")


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_and_counters_are_those_of_the_general_way(nursery: trio.Nursery, version: int) -> None:
    general, special = await started(nursery), await started(nursery)
    short = taught(special, frame(special, version, batch()))
    in_general(general, frame(general, version, batch()))
    for number, value in enumerate([b"w", b"x" * 60, b"y" * 100, b"z" * 20_000]):
        asked = frame(general, version, batch(value), number - 2)
        _, _, expected = in_general(general, memoryview(bytearray(asked)))
        answer = short.answer(asked)
        assert answer is not None
        assert b"".join(answer.parts) == b"".join(expected.parts)
        assert answer.size_bytes == expected.size_bytes
        [ticket] = answer.tickets
        assert (ticket.log, ticket.end_offset) == (special.partition(TopicPartition("t", 0)), number + 2)
    for name in ("messages_in", "bytes_in", "produce_requests", "failed_produce_requests"):
        assert getattr(special.metrics.topic("t"), name) == getattr(general.metrics.topic("t"), name)
    stop(nursery, general, special)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_the_log_refuses_is_refused_in_the_same_words(nursery: trio.Nursery, version: int) -> None:
    general, special = await started(nursery), await started(nursery)
    short = taught(special, frame(special, version, batch()))
    in_general(general, frame(general, version, batch()))
    broken = bytearray(batch(b"longer than a header"))
    broken[-1] ^= 1
    for number, records in enumerate([bytes(broken), batch(base_offset=7), batch() + b"rest", b"\0" * 61]):
        asked = frame(general, version, records, number)
        _, _, expected = in_general(general, memoryview(bytearray(asked)))
        answer = short.answer(asked)
        assert answer is not None
        assert b"".join(answer.parts) == b"".join(expected.parts)
        assert not list(answer.tickets)
    assert special.metrics.topic("t").failed_produce_requests == 4
    stop(nursery, general, special)


async def test_a_retried_batch_is_a_duplicate_and_counted_once(nursery: trio.Nursery) -> None:
    """Row P3."""
    node = await started(nursery)
    short = taught(node, frame(node, 9, batch()))
    same = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    answers = [short.answer(frame(node, 9, batch(**same))) for _ in range(2)]
    assert [read(answer).base_offset for answer in answers if answer is not None] == [1, 1]
    assert node.metrics.topic("t").messages_in == 2
    stop(nursery, node)


@pytest.mark.parametrize(
    "other",
    [
        {"acks": 1},
        {"acks": 0},
        {"transactional_id": "x"},
        {"timeout_ms": 5},
        {"partition": 1},
    ],
    ids=str,
)
async def test_any_other_request_goes_the_general_way(nursery: trio.Nursery, other: dict[str, Any]) -> None:
    node = await started(nursery)
    short = taught(node, frame(node, 9, batch()))
    assert short.answer(frame(node, 9, batch(), **other)) is None
    assert short.answer(frame(node, 10, batch())) is None, "the same bytes in another version mean something else"
    assert short.answer(frame(node, 9, batch())) is not None
    stop(nursery, node)


async def test_frames_that_do_not_end_where_they_should_go_the_general_way(nursery: trio.Nursery) -> None:
    node = await started(nursery)
    short = taught(node, frame(node, 9, batch()))
    good = bytes(frame(node, 9, batch()))
    end = len(good) - 3 - len(batch()) - 1
    for size in range(len(good)):
        assert short.answer(memoryview(bytearray(good[:size]))) is None
    for bad in (
        good + b"\0",
        good[:-1] + b"\1",
        good[:end] + b"\xff\xff\xff\xff\xff" + good[end + 1 :],
        good[:end] + b"\0" + good[end + 1 :],
        good[:end] + b"\0\0\0\0\0\0\0",
    ):
        assert short.answer(memoryview(bytearray(bad))) is None
    log = node.partition(TopicPartition("t", 0))
    assert log is not None
    assert log.log_end_offset == 1, "nothing of all this was appended"
    stop(nursery, node)


async def test_a_transactional_batch_without_the_name_of_its_transaction_goes_the_general_way(
    nursery: trio.Nursery,
) -> None:
    """Rows T15 and T16: a coordinator has its say first."""
    node = await started(nursery)
    short = taught(node, frame(node, 9, batch()))
    records = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert short.answer(frame(node, 9, records)) is None
    stop(nursery, node)


async def open_transaction(node: Node, *partitions: int) -> dict[str, Any]:
    """What the batches of a producer say whose transaction has these partitions of t."""
    service = node.transactions
    held = await service.init_producer_id("x", 60_000)
    names = [TopicPartition("t", partition) for partition in partitions]
    codes = await service.add_partitions("x", held.producer_id, held.epoch, names)
    assert set(codes.values()) <= {ErrorCode.NONE}
    return {"transactional": True, "producer_id": held.producer_id, "producer_epoch": held.epoch}


async def end_transaction(node: Node, of: dict[str, Any]) -> None:
    answer = await node.transactions.end_txn("x", of["producer_id"], of["producer_epoch"], True, client_version=0)
    assert answer.error is ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_transactions_batches_are_answered_as_in_the_general_way(nursery: trio.Nursery, version: int) -> None:
    """Rows T15, T16: the first one where the coordinator has the partition, the others where the log has it open."""
    general, special = await started(nursery), await started(nursery)
    of, also_of = await open_transaction(general, 0), await open_transaction(special, 0)
    assert of == also_of
    asked = frame(general, version, batch(**of, base_sequence=0), transactional_id="x")
    in_general(general, asked)
    short = taught(special, asked)
    for sequence in (1, 2, 2, 3):  # one comes twice
        if sequence == 3:  # in the next transaction, and so the first of it
            for node in (general, special):
                await end_transaction(node, of)
                names = [TopicPartition("t", 0)]
                await node.transactions.add_partitions("x", of["producer_id"], of["producer_epoch"], names)
        asked = frame(general, version, batch(**of, base_sequence=sequence), sequence, transactional_id="x")
        _, _, expected = in_general(general, memoryview(bytearray(asked)))
        answer = short.answer(asked)
        assert answer is not None
        assert b"".join(answer.parts) == b"".join(expected.parts)
        assert read(answer).error_code == 0
    logs = [node.partition(TopicPartition("t", 0)) for node in (general, special)]
    assert [log.last_stable_offset for log in logs if log is not None] == [4, 4], "open since the marker's next offset"
    for name in ("messages_in", "bytes_in", "produce_requests", "failed_produce_requests"):
        assert getattr(special.metrics.topic("t"), name) == getattr(general.metrics.topic("t"), name)
    stop(nursery, general, special)


async def test_what_the_log_refuses_of_a_transaction_is_refused_in_the_same_words(nursery: trio.Nursery) -> None:
    """Rows P2, P4: a gap in the sequence, a damaged batch."""
    general, special = await started(nursery), await started(nursery)
    of = await open_transaction(general, 0)
    assert of == await open_transaction(special, 0)
    asked = frame(general, 9, batch(**of, base_sequence=0), transactional_id="x")
    in_general(general, asked)
    short = taught(special, asked)
    damaged = bytearray(batch(**of, base_sequence=1))
    damaged[-1] ^= 1
    for records in (batch(**of, base_sequence=7), bytes(damaged)):
        asked = frame(general, 9, records, transactional_id="x")
        _, _, expected = in_general(general, memoryview(bytearray(asked)))
        answer = short.answer(asked)
        assert answer is not None
        assert b"".join(answer.parts) == b"".join(expected.parts)
        assert read(answer).error_code != 0
    stop(nursery, general, special)


@pytest.mark.parametrize("other", ["not added", "ended", "another epoch", "another name", "cut off"])
async def test_where_the_coordinator_has_to_be_asked_a_batch_goes_the_general_way(
    nursery: trio.Nursery, other: str
) -> None:
    """Rows T15, T16: a partition that is not in the open transaction of this very identity."""
    node = await started(nursery)
    of = await open_transaction(node, 0, 1)
    asked = [frame(node, 9, batch(**of, base_sequence=0), partition=one, transactional_id="x") for one in (0, 1)]
    short = taught(node, *asked)
    await end_transaction(node, of)
    if other != "ended":
        names = [TopicPartition("t", partition) for partition in ((1,) if other == "not added" else (0, 1))]
        await node.transactions.add_partitions("x", of["producer_id"], of["producer_epoch"], names)
    wrong: dict[str, Any] = {"producer_epoch": 5} if other == "another epoch" else {}
    records = batch(**(of | wrong), base_sequence=1)
    name = "y" if other == "another name" else "x"
    at = node.partition(TopicPartition("t", 0))
    assert at is not None
    before = at.log_end_offset
    assert short.answer(frame(node, 9, records[:60] if other == "cut off" else records, transactional_id=name)) is None
    assert at.log_end_offset == before
    assert not at.producers.has_open(of["producer_id"])
    if other == "not added":
        records = batch(**of, base_sequence=1)
        assert short.answer(frame(node, 9, records, partition=1, transactional_id="x")) is not None
    stop(nursery, node)


@pytest.mark.parametrize("other", [{"acks": 1}, {"acks": 0}], ids=str)
async def test_only_what_may_come_again_is_learnt(nursery: trio.Nursery, other: dict[str, Any]) -> None:
    node = await started(nursery)
    asked = frame(node, 9, batch(), **other)
    short = RepeatedProduce(node)
    request, context = decoded(asked)
    short.learn(asked, request, context)
    assert short.answer(asked) is None
    stop(nursery, node)


async def test_a_deleted_topic_is_not_written_to_and_its_successor_is(nursery: trio.Nursery) -> None:
    node = await started(nursery)
    short = taught(node, frame(node, 9, batch()))
    await node.metadata.delete_topics([TopicRef(name="t")])
    await node.metadata.create_topics([NewTopic("t", 2)])
    again = frame(node, 9, batch())
    assert short.answer(again) is None
    request, context, _ = in_general(node, again)
    short.learn(again, request, context)
    answer = short.answer(frame(node, 9, batch()))
    assert answer is not None
    assert read(answer).base_offset == 1
    stop(nursery, node)


async def test_a_log_that_goes_offline_before_it_is_durable_takes_the_ack_back(nursery: trio.Nursery) -> None:
    general, special = await started(nursery), await started(nursery)
    short = taught(special, frame(special, 9, batch()))
    in_general(general, frame(general, 9, batch()))
    asked = frame(special, 9, batch(), 77)
    _, _, expected = in_general(general, memoryview(bytearray(asked)))
    answer = short.answer(asked)
    assert answer is not None
    for node, one in ((general, expected), (special, answer)):
        log = node.partition(TopicPartition("t", 0))
        assert log is not None
        log._high_watermark = 1
        log.take_offline(OSError(5, "a flush failed"))
        one.revise()
    assert b"".join(answer.parts) == b"".join(expected.parts)
    assert read(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    stop(nursery, general, special)


async def test_what_is_remembered_is_bounded(nursery: trio.Nursery) -> None:
    node = await started(nursery)
    short = taught(node, *(frame(node, 9, batch(), timeout_ms=number) for number in range(KNOWN_MAX + 10)))
    assert len(short._known) == 10
    for size in range(10):
        asked = frame(node, 9, batch())
        request, context = decoded(asked)
        context.client_id = "c" * size
        head = write_request_header(PRODUCE, 9, 1, context.client_id)
        asked = memoryview(bytearray(head + PRODUCE.request.encode(request, 9)))
        short.learn(asked, request, context)
        assert short.answer(asked) is not None
    assert len(short._prefix_ends) == PREFIX_LENGTHS_MAX
    stop(nursery, node)


def stop(nursery: trio.Nursery, *nodes: Node) -> None:
    for node in nodes:
        node.stop()
