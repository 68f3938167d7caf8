"""One connection: answers in the order of the requests, frames in any pieces, a slow reader that stops only itself."""

import socket
import struct
import time
from random import Random

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateRequest
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import FETCH, PRODUCE, Wire, batch_of, fetch_request, produce_request, values_in

METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 10, 17, 18, 36
MIB = 1 << 20


@pytest.mark.parametrize("files", [False, True])
def test_pipelined_requests_are_answered_in_their_order(start_broker: StartBroker, files: bool) -> None:
    broker = start_broker(files=files)
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        asked, data = [], b""
        for number in range(60):
            key, version, request = [
                (PRODUCE, 9, produce_request("t", batch_of(b"%d" % number), acks=-1 if number % 2 else 1)),
                (METADATA, 9, MetadataRequest(topics=[])),
                (FETCH, 11, fetch_request("t")),
                (FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g", key_type=0)),
            ][number % 4]
            correlation_id, frame = wire.frame(key, version, request)
            asked.append((correlation_id, key, version))
            data += frame
        wire.socket.sendall(data)
        for correlation_id, key, version in asked:
            assert wire.receive(key, version)[0] == correlation_id


def test_pipelined_writes_are_appended_in_order_and_share_their_flush(file_broker: BrokerProcess) -> None:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
        frames = [wire.frame(PRODUCE, 9, produce_request("t", batch_of(b"%d" % n)))[1] for n in range(100)]
        wire.socket.sendall(b"".join(frames))
        offsets = [wire.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].base_offset for _ in frames]
        assert offsets == list(range(100))
        assert values_in(wire.fetch("t")) == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("files", [False, True])
def test_what_stands_before_a_request_that_ends_the_connection_is_answered(
    start_broker: StartBroker, files: bool
) -> None:
    """Kafka handles a connection's requests one by one, and so has answered them when it closes."""
    broker = start_broker(files=files)
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        _, unwritable = wire.frame(PRODUCE, 9, produce_request("none", batch_of(b"x"), acks=0))
    for number, wrong in enumerate([unwritable, struct.pack(">i", -1), struct.pack(">ihhih", 10, 999, 0, 7, -1)]):
        with Wire(broker.connect()) as wire:
            asked = [
                (PRODUCE, 9, produce_request("t", batch_of(b"x"), acks=-1)),
                (API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1")),
                (PRODUCE, 9, produce_request("t", batch_of(b"x"), acks=1)),
            ]
            wire.socket.sendall(b"".join(wire.frame(*request)[1] for request in asked) + wrong)
            first, _, second = [wire.receive(key, version)[1] for key, version, _ in asked]
            offsets = [answer.responses[0].partition_responses[0].base_offset for answer in (first, second)]
            assert offsets == [2 * number, 2 * number + 1]
            wire.expect_end()


def test_acks_0_gets_no_answer_and_a_refused_one_ends_the_connection(broker: BrokerProcess) -> None:
    """L8, Kafka's rule: with acks=0 closing is the only way to say that something went wrong."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        for _ in range(3):
            wire.send(PRODUCE, 9, produce_request("t", batch_of(b"x"), acks=0))
        correlation_id = wire.send(METADATA, 9, MetadataRequest(topics=[]))
        assert wire.receive(METADATA, 9)[0] == correlation_id  # nothing came before it
        assert len(values_in(wire.fetch("t"))) == 3
        wire.send(PRODUCE, 9, produce_request("no-such-topic", batch_of(b"x"), acks=0))
        wire.expect_end()


def test_a_frame_may_come_byte_by_byte(broker: BrokerProcess) -> None:
    with Wire(broker.connect()) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        correlation_id, frame = wire.frame(METADATA, 9, MetadataRequest(topics=[]))
        for at in range(len(frame)):
            wire.socket.sendall(frame[at : at + 1])
        assert wire.receive(METADATA, 9)[0] == correlation_id


def test_a_large_frame_in_pieces_is_whole(broker: BrokerProcess) -> None:
    value = bytes(range(256)) * 3600
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        _, frame = wire.frame(PRODUCE, 9, produce_request("t", batch_of(value)))
        for at in range(0, len(frame), 70_001):
            wire.socket.sendall(frame[at : at + 70_001])
            time.sleep(0.001)
        assert wire.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert values_in(wire.fetch("t")) == [value]


def test_many_producers_send_bursts_of_middling_batches_in_any_pieces(file_broker: BrokerProcess) -> None:
    """A burst is answered in its order and stored once, whatever pieces it came in and whoever else sends."""
    clients, bursts, in_flight = 12, 4, 5
    random = Random(17)
    wires = [Wire(file_broker.connect()) for _ in range(clients)]
    wires[0].create_topic("t", 3)
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for burst in range(bursts):
        waiting = []
        for number, wire in enumerate(wires):
            data, expected = b"", []
            for place in range(in_flight):
                value = b"%d-%d-%d " % (number, burst, place) + bytes(random.randrange(100, 16_000))
                request = produce_request("t", batch_of(value), partition=number % 3)
                correlation_id, frame = wire.frame(PRODUCE, 9, request)
                data += frame
                expected.append(correlation_id)
                sent[number % 3].append(value)
            waiting.append((wire, data, expected))
        while any(data for _, data, _ in waiting):
            for at, (wire, data, expected) in enumerate(waiting):
                piece = random.choice([1, 3, 7000, 15_000, 40_000, 200_000])
                wire.socket.sendall(data[:piece])
                waiting[at] = wire, data[piece:], expected
        for wire, _, expected in waiting:
            for correlation_id in expected:
                got, answer = wire.receive(PRODUCE, 9)
                assert got == correlation_id
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    for partition, values in sent.items():
        stored = values_in(wires[0].fetch("t", partition=partition, max_bytes=16 * MIB, partition_max_bytes=16 * MIB))
        assert sorted(stored, key=str) == sorted(values, key=str)
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("files", [False, True])
def test_a_slow_reader_stops_only_itself(start_broker: StartBroker, files: bool) -> None:
    """32 fetches of 2 MiB are asked for and not read: the broker serves others, and holds a bounded part of it."""
    broker = start_broker(files=files)
    value = b"v" * (1 << 19)
    with Wire(broker.connect()) as other, Wire(broker.connect()) as slow:
        other.create_topic("t")
        for _ in range(8):
            other.produce("t", batch_of(value))
        before = broker.rss_bytes()
        for _ in range(32):
            slow.send(FETCH, 11, fetch_request("t", max_bytes=2 * MIB))
        for _ in range(20):
            assert other.produce("t", batch_of(b"small")).error_code == ErrorCode.NONE
        assert broker.rss_bytes() - before < 16 * MIB
        for _ in range(32):  # and when it reads at last, all of it is there
            assert set(values_in(slow.receive(FETCH, 11)[1].responses[0].partitions[0])) == {value}


def test_list_offsets_of_the_old_style(broker: BrokerProcess) -> None:
    """D.1: librdkafka before 1.8 asks ListOffsets v0."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"a", b"b"))
        assert wire.offset_of("t", -1, version=0).old_style_offsets == [2]
        assert wire.offset_of("t", -2, version=0).old_style_offsets == [0]
        both = wire.frame(2, 0, _two_offsets())[1]
        wire.socket.sendall(both)
        assert wire.receive(2, 0)[1].topics[0].partitions[0].old_style_offsets == [2, 0]


def _two_offsets() -> object:
    from fencepost.protocol.messages.api02_list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    ask = ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=5)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[ask])])


def test_sasl_on_a_plaintext_listener_is_out_of_place(broker: BrokerProcess) -> None:
    with Wire(broker.connect()) as wire:
        handshake = wire.call(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
        login = wire.call(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0a\0b"))
        assert login.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_nameless_client_software_is_refused_politely(broker: BrokerProcess) -> None:
    """KIP-511: names and versions of clients are letters, digits, dots and dashes."""
    with Wire(broker.connect()) as wire:
        request = ApiVersionsRequest(client_software_name="-bad-", client_software_version="1")
        assert wire.call(API_VERSIONS, 3, request).error_code == ErrorCode.INVALID_REQUEST


def test_max_connections_closes_what_is_too_many(start_broker: StartBroker) -> None:
    broker = start_broker(settings={"max.connections": "2"})
    with Wire(broker.connect()) as first, Wire(broker.connect()) as second:
        assert first.call(METADATA, 9, MetadataRequest(topics=[])).brokers
        assert second.call(METADATA, 9, MetadataRequest(topics=[])).brokers
        with Wire(broker.connect()) as third:
            third.expect_end()
    assert "max.connections=2" in broker.log()


def test_a_silent_connection_is_closed(start_broker: StartBroker) -> None:
    broker = start_broker(settings={"connections.max.idle.ms": "5000"})
    with Wire(broker.connect()) as wire:
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers
        wire.expect_end()


def test_silence_may_be_allowed_for_ever(start_broker: StartBroker) -> None:
    """A negative connections.max.idle.ms is no limit, as in Kafka."""
    broker = start_broker(settings={"connections.max.idle.ms": "-1"})
    with Wire(broker.connect()) as wire:
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers
        time.sleep(1.5)
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers


def test_a_request_over_the_limit_names_the_setting(start_broker: StartBroker) -> None:
    broker = start_broker(settings={"socket.request.max.bytes": "1000"})
    with Wire(broker.connect()) as wire:
        wire.socket.sendall(struct.pack(">i", 1001))
        wire.expect_end()
    assert "socket.request.max.bytes=1000" in broker.log()


def test_thousands_of_connections_at_once(broker: BrokerProcess) -> None:
    """The listen backlog takes a burst; idle connections cost little (reliability.md, section 6: 40 KiB each)."""
    before = broker.rss_bytes()
    held = [broker.connect() for _ in range(800)]
    with Wire(broker.connect()) as wire:
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers
    assert broker.rss_bytes() - before < 800 * 40 * 1024
    for sock in held:
        sock.close()
