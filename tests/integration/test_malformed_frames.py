"""What no client should send costs its own connection at most: the table of reliability.md, section 2, row by row."""

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import write_request_header
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of, values_in

MIB = 1 << 20
METADATA, API_VERSIONS = 3, 18
NULL_CLIENT = struct.pack(">h", -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, correlation_id: int = 7) -> bytes:
    return struct.pack(">hhi", api_key, version, correlation_id) + NULL_CLIENT


def metadata_body(version: int, body: bytes) -> bytes:
    return framed(write_request_header(API_BY_KEY[METADATA], version, 7, None) + body)


CLOSED = {
    "length -1": struct.pack(">i", -1),
    "length 0": struct.pack(">i", 0),
    "length 2**31-1": struct.pack(">i", 2**31 - 1),
    "TLS hello": bytes.fromhex("160301020001000001fc0303") + bytes(20),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown API key": framed(header(999, 0)),
    "API key of another listener": framed(header(4, 0)),
    "negative API key": framed(header(-1, 0)),
    "known API, version 99": framed(header(METADATA, 99) + bytes(8)),
    "negative version": framed(header(METADATA, -1) + bytes(8)),
    "header of 3 bytes": framed(b"\0\3\0"),
    "client id longer than the frame": framed(struct.pack(">hhih", METADATA, 1, 7, 30000) + b"x"),
    "truncated body": metadata_body(1, b"\0\0"),
    "array length 2**31-1": metadata_body(1, struct.pack(">i", 2**31 - 1)),
    "array length -2": metadata_body(1, struct.pack(">i", -2)),
    "string length -5": metadata_body(1, struct.pack(">ih", 1, -5)),
    "varint of 10 bytes": metadata_body(9, b"\xff" * 9 + b"\x01"),
    "tagged field longer than the frame": metadata_body(9, b"\x00\x00\x00\x00\x01\x00\x7f"),
    "Produce 0-2, advertised and refused (KAFKA-18659)": framed(header(0, 2) + struct.pack(">hii", 1, 1000, 0)),
    "Fetch 3": framed(header(1, 3) + bytes(20)),
}


def assert_alive(broker: BrokerProcess) -> None:
    with Wire(broker.connect()) as wire:
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED.keys())
def test_the_connection_is_closed_and_the_broker_lives(broker_of_module: BrokerProcess, data: bytes) -> None:
    with Wire(broker_of_module.connect()) as wire:
        wire.socket.sendall(data)
        wire.expect_end()
    assert_alive(broker_of_module)


def test_no_row_of_the_table_leaves_a_traceback_and_each_names_cause_and_peer(broker: BrokerProcess) -> None:
    for data in CLOSED.values():
        with Wire(broker.connect()) as wire:
            wire.socket.sendall(data)
            wire.expect_end()
    log = broker.log()
    assert "Traceback" not in log
    lines = [line for line in log.splitlines() if "closing connection" in line]
    assert len(lines) == len(CLOSED)
    assert all("peer=127.0.0.1:" in line and "cause=" in line for line in lines)
    assert "speaks TLS" in log
    assert "speaks HTTP" in log


def test_api_versions_past_ours_is_answered_in_version_0(broker_of_module: BrokerProcess) -> None:
    """KIP-511: error 35, the range of ApiVersions, and the connection goes on."""
    with Wire(broker_of_module.connect()) as wire:
        wire.socket.sendall(framed(header(API_VERSIONS, 99, 5) + b"whatever it holds"))
        correlation_id, response = wire.receive(API_VERSIONS, 0)
        assert correlation_id == 5
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        assert ranges == {API_VERSIONS: API_BY_KEY[API_VERSIONS].advertised}
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers


def corrupt_crc(batch: bytearray) -> bytes:
    batch[-1] ^= 0xFF
    return bytes(batch)


def negative_count(batch: bytearray) -> bytes:
    struct.pack_into(">i", batch, 57, -1)
    return bytes(batch)


def wrong_magic(batch: bytearray) -> bytes:
    batch[16] = 1
    return bytes(batch)


def cut_off(batch: bytearray) -> bytes:
    return bytes(batch[:-3])


def two_batches(batch: bytearray) -> bytes:
    return bytes(batch) * 2


def no_batch(_batch: bytearray) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("spoil", "codes"),
    [
        (corrupt_crc, {ErrorCode.CORRUPT_MESSAGE}),
        (negative_count, {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
        (wrong_magic, {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
        (cut_off, {ErrorCode.INVALID_RECORD}),
        (two_batches, {ErrorCode.INVALID_RECORD}),
        (no_batch, {ErrorCode.INVALID_RECORD}),
    ],
)
def test_a_bad_batch_is_answered_and_the_connection_lives(
    broker_of_module: BrokerProcess, spoil: Callable[[bytearray], bytes], codes: set[ErrorCode]
) -> None:
    topic = spoil.__name__
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic(topic)
        answer = wire.produce(topic, spoil(batch_of(b"x" * 100)))
        assert answer.error_code in codes
        assert answer.base_offset == -1
        assert wire.produce(topic, batch_of(b"good")).error_code == ErrorCode.NONE
        assert values_in(wire.fetch(topic)) == [b"good"]


def test_one_of_very_many_partitions_named_twice_holds_up_no_client(broker_of_module: BrokerProcess) -> None:
    """Others wait as long as it takes."""
    asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in [*range(50_000), 0]]
    with Wire(broker_of_module.connect()) as wire:
        wire.socket.settimeout(30)
        answer = wire.call(2, 7, ListOffsetsRequest(topics=[ListOffsetsTopic(name="none", partitions=asked)]))
    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes[0] == codes[-1] == ErrorCode.INVALID_REQUEST
    assert set(codes[1:-1]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("assignments", [None, []])
def test_a_count_that_is_refused_costs_no_memory(
    broker_of_module: BrokerProcess, assignments: list[Any] | None
) -> None:
    """2**31 - 1 places of eight bytes each would be 16 GiB, and a minute in which nobody is served."""
    topic = "grown" if assignments is None else "assigned"
    wanted = CreatePartitionsTopic(name=topic, count=2**31 - 1, assignments=assignments)
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic(topic)
        wire.socket.settimeout(10)
        answer = wire.call(37, 3, CreatePartitionsRequest(topics=[wanted], timeout_ms=1000))
    expected = ErrorCode.INVALID_PARTITIONS if assignments is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert answer.results[0].error_code == expected


def test_claimed_lengths_cost_no_memory(broker: BrokerProcess) -> None:
    """Kafka takes 208 MB for one claim of 100 MB and 141 MB for ten of 20 MB."""
    assert_alive(broker)
    before = broker.rss_bytes()
    held = []
    for claim in [100 * MIB, *[20 * MIB] * 10]:
        sock = broker.connect()
        sock.sendall(struct.pack(">i", claim) + b"x" * 20)
        held.append(sock)
    assert_alive(broker)
    grown = broker.rss_bytes() - before
    for sock in held:
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):  # kept open: the claim itself is legal
            sock.recv(1)
        sock.close()
    assert grown < 4 * MIB


def test_a_thousand_bad_connections_leave_nothing_behind(broker: BrokerProcess) -> None:
    rows = list(CLOSED.values())

    def spoil(count: int) -> None:
        for number in range(count):
            with Wire(broker.connect()) as wire:
                wire.socket.sendall(rows[number % len(rows)])
                wire.expect_end()

    spoil(200)
    before = broker.rss_bytes()
    spoil(1000)
    assert_alive(broker)
    assert broker.rss_bytes() - before < 5 * MIB


def test_a_client_that_goes_away_in_the_middle_of_a_frame(broker: BrokerProcess) -> None:
    for _ in range(50):
        sock = broker.connect()
        sock.sendall(struct.pack(">i", 1000) + b"half")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a goodbye
        sock.close()
    assert_alive(broker)
    assert "Traceback" not in broker.log()
