"""A repeated Produce request is read, checked and answered as if it were decoded."""

import gc
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.broker.handlers.repeated_produce import (
    KNOWN_MAX,
    PREFIX_BYTES_MAX,
    PREFIX_LENGTHS_MAX,
    REFUSED_MAX,
    KnownRequest,
    RepeatedProduce,
)
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.network.dispatch import Dispatch, UnservedRequest
from fencepost.protocol.headers import read_request_header, write_request_header
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.varints import Malformed, put_varint
from fencepost.testing import Broker
from tests.kit.wire import Wire, batch_of

PRODUCE = API_BY_KEY[0]
VERSIONS = range(7, PRODUCE.served[1] + 1)
DISPATCH = Dispatch()
TOPIC_ID = bytes(range(16))
NOT_DECODED = (DecodeError, Malformed, UnservedRequest, ValueError, IndexError, struct.error)
SESSION = Session("10.0.0.9", Endpoint("broker", 9092))


def frame_of(
    version: int, batches: list[bytes], correlation_id: int = 7, client_id: str | None = "app", topic: str = "orders"
) -> memoryview:
    parts = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    data = [TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=parts)]
    request = ProduceRequest(transactional_id="x" if version % 2 else None, acks=-1, timeout_ms=1000, topic_data=data)
    head = write_request_header(PRODUCE, version, correlation_id, client_id)
    return memoryview(bytearray(head + PRODUCE.request.encode(request, version)))


def decoded(frame: memoryview) -> tuple[Any, RequestContext]:
    key, version, correlation_id, client_id, start = read_request_header(frame)
    request, _ = DISPATCH.route(key, version).decode(frame, start)
    return request, RequestContext(key, version, correlation_id, client_id, SESSION)


def learned(table: RepeatedProduce, frame: memoryview) -> None:
    request, context = decoded(frame)
    table.learn(frame, DISPATCH.route(0, context.api_version), request, context)


def facts(request: Any, context: RequestContext) -> Any:
    """All that a handler can read of a request."""
    [topic] = request.topic_data
    parts = [(part.index, bytes(part.records)) for part in topic.partition_data]
    header = [getattr(context, name) for name in RequestContext.__slots__ if name != "repeated"]
    return request.transactional_id, request.acks, request.timeout_ms, topic.name, topic.topic_id, parts, header


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 60, 100, 200, 20_000])
def test_a_repetition_reads_as_its_decoder_reads_it(version: int, size: int) -> None:
    table = RepeatedProduce()
    learned(table, frame_of(version, [batch_of(b"first")]))
    frame = frame_of(version, [batch_of(bytes(size))], correlation_id=-8)
    found = table.find(frame)
    assert found is not None
    assert facts(*found[1:]) == facts(*decoded(frame))
    assert found[0].version == version


@pytest.mark.parametrize(
    "other",
    [
        frame_of(9, [batch_of(b"v")], client_id="another"),
        frame_of(9, [batch_of(b"v")], client_id=None),
        frame_of(9, [batch_of(b"v")], topic="orders2"),
        frame_of(9, [batch_of(b"v"), batch_of(b"v")]),
        frame_of(10, [batch_of(b"v")]),
        frame_of(11, [batch_of(b"v")]),
        frame_of(9, [b""]),
        frame_of(9, [b"short"]),
    ],
)
def test_what_differs_is_decoded(other: memoryview) -> None:
    table = RepeatedProduce()
    learned(table, frame_of(9, [batch_of(b"first")]))
    assert table.find(other) is None


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(9, [batch_of(b"v")] * 2),
        frame_of(9, [b""]),
        frame_of(9, [batch_of(b"v")], client_id="x" * PREFIX_BYTES_MAX),
    ],
)
def test_only_one_batch_with_short_names_is_kept(frame: memoryview) -> None:
    table = RepeatedProduce()
    learned(table, frame)
    assert table.find(frame) is None


@given(st.sampled_from(VERSIONS), st.integers(0, 200), st.binary(max_size=6), st.integers(0, 6))
@example(9, 0, b"", 0)
def test_no_damaged_frame_is_read_otherwise_than_by_the_decoder(
    version: int, position: int, put: bytes, cut: int
) -> None:
    """Bytes replaced, inserted or removed anywhere: the table leaves the frame to the decoder, or agrees with it."""
    table = RepeatedProduce()
    frame = frame_of(version, [batch_of(b"v" * 60)])
    learned(table, frame)
    data = bytes(frame)
    damaged = memoryview(bytearray(data[:position] + put + data[position + cut :]))
    found = table.find(damaged)
    if found is not None:
        try:
            expected = decoded(damaged)
        except NOT_DECODED as error:
            raise AssertionError("the table has read what no decoder can") from error
        assert facts(*found[1:]) == facts(*expected)


@given(st.sampled_from(VERSIONS), st.integers(0, 200), st.binary(max_size=6), st.integers(0, 6))
def test_nothing_is_learned_wrongly_from_an_unusual_frame(version: int, position: int, put: bytes, cut: int) -> None:
    """Bytes after the last field are ignored, unknown tagged fields too: such frames are known only as decoded."""
    table = RepeatedProduce()
    data = bytes(frame_of(version, [batch_of(b"v" * 60)]))
    frame = memoryview(bytearray(data[:position] + put + data[position + cut :]))
    try:
        expected = decoded(frame)
    except NOT_DECODED:
        return
    if expected[0].topic_data and expected[1].api_version in VERSIONS:
        learned(table, frame)
        found = table.find(frame)
        assert found is None or facts(*found[1:]) == facts(*expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_behind_the_last_field_is_not_taken_for_the_requests_own(version: int) -> None:
    junk = bytes(batch_of(b"junk"))
    lead = put_varint(len(junk) + 1) if version >= 9 else struct.pack(">i", len(junk))
    tail = bytes(3) if version >= 9 else b""
    table = RepeatedProduce()
    frame = memoryview(bytearray(bytes(frame_of(version, [batch_of(b"real")])) + lead + junk + tail))
    learned(table, frame)
    assert table.find(frame) is None


def test_a_full_table_learns_no_more_until_many_had_no_room() -> None:
    """So a connection that writes to more partitions than the table holds pays nothing for it."""
    table = RepeatedProduce()
    frames = [frame_of(9, [batch_of(b"v")], topic=f"orders-{number:04}") for number in range(KNOWN_MAX + 1)]
    for frame in frames:
        learned(table, frame)
    assert [table.find(frame) is not None for frame in frames] == [True] * KNOWN_MAX + [False]
    for _ in range(REFUSED_MAX + 1):
        learned(table, frames[-1])
    assert table.find(frames[-1]) is not None
    assert table.find(frames[0]) is None


def test_names_of_more_lengths_than_the_table_tries_are_decoded() -> None:
    table = RepeatedProduce()
    frames = [frame_of(9, [batch_of(b"v")], topic="orders" + "x" * number) for number in range(PREFIX_LENGTHS_MAX + 2)]
    for frame in frames:
        learned(table, frame)
    assert [table.find(frame) is not None for frame in frames] == [True] * PREFIX_LENGTHS_MAX + [False] * 2


def test_a_table_needs_no_garbage_collector() -> None:
    """A broker that freezes its objects collects rarely; closed connections must be gone at once."""
    gc.collect()
    gc.disable()
    try:
        table = RepeatedProduce()
        frame = frame_of(9, [batch_of(b"v")])
        learned(table, frame)
        found = table.find(frame)
        assert found is not None
        del table, found
        assert not [one for one in gc.get_objects() if isinstance(one, KnownRequest)]
    finally:
        gc.enable()


class Asking(Wire):
    def write(self, version: int, records: bytes) -> Any:
        part = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[part])]
        )
        return self.call(0, version, request)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("version", [7, 9, 12])
def test_the_answer_is_the_one_that_a_new_connection_gets(broker: Broker, version: int) -> None:
    """The first request of a connection is decoded, the later ones are not: all have answers of the same shape."""
    damaged = bytearray(batch_of(b"v" * 60))
    damaged[-1] ^= 1
    with Asking(socket.create_connection(("127.0.0.1", broker.port), 30)) as repeating:
        repeating.create_topic("t")
        offset = 0
        for records in [batch_of(b"v"), batch_of(b"w"), bytes(damaged), batch_of(b"x" * 300), batch_of(b"v") + b"rest"]:
            answers = [repeating.write(version, records)]
            with Asking(socket.create_connection(("127.0.0.1", broker.port), 30)) as decoding:
                answers.append(decoding.write(version, records))
            shown = []
            for answer in answers:
                part = answer.responses[0].partition_responses[0]
                if not part.error_code:
                    assert part.base_offset == offset
                    offset += 1
                    part.base_offset = 0
                shown.append(repr(answer))
            assert shown[0] == shown[1]


def test_every_repetition_passes_the_place_for_checks(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check before every handler sees the topic, the transactional id and the header of a repetition, too."""
    seen: list[tuple[Any, ...]] = []
    handle = Connection._handle

    def check(self: Connection, route: Any, request: Any, context: RequestContext) -> Any:
        if context.api_key == 0:
            seen.append((request.topic_data[0].name, request.transactional_id, context.correlation_id))
        return handle(self, route, request, context)

    monkeypatch.setattr(Connection, "_handle", check)
    with Asking(socket.create_connection(("127.0.0.1", broker.port), 30)) as wire:
        wire.create_topic("t")
        for _ in range(5):
            wire.write(9, batch_of(b"v"))
    assert [one[:2] for one in seen] == [("t", None)] * 5
    assert len({one[2] for one in seen}) == 5
