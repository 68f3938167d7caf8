"""The client's side of a connection as a value: each rule of Kafka's that a session keeps, without a socket."""

import struct
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fencepost.protocol import session as session_module
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header, write_response_header
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from fencepost.protocol.registry import API_BY_KEY, API_BY_NAME, Api
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.session import (
    MOST_BYTES_AT_FIRST,
    Refused,
    Response,
    Sent,
    Session,
    SessionError,
    learn_versions,
    next_step,
)
from tests.kit.answers import metadata_told, versions_told
from tests.kit.frames import framed

METADATA, VERSIONS = API_BY_NAME["Metadata"], API_BY_NAME["ApiVersions"]
MOST_BYTES = 64 << 20


def begun(ready: bool = True, **options: Any) -> Session[Sent]:
    session: Session[Sent] = Session("me", MOST_BYTES, **options)
    session.ready = ready
    return session


def ask(session: Session[Sent], api: Api = METADATA, version: int = 9) -> Sent:
    """Send a request; its bytes are looked at elsewhere."""
    sent = Sent(api, version)
    session.send(sent, MetadataRequest(topics=[]) if api is METADATA else ApiVersionsRequest())
    return sent


def answer(correlation: int, topics: Iterable[str] = (), version: int = 9) -> bytes:
    """The frame of a response to Metadata."""
    body = METADATA.response.encode(metadata_told({1: 9092}, topics, {}), version)
    return framed(write_response_header(METADATA, version, correlation), body)


def feed(session: Session[Sent], data: bytes, at_once: int = 1 << 30) -> list[Response[Sent]]:
    """The responses in `data`, of which at most `at_once` bytes arrive together."""
    found = []
    while data:
        room = session.room()
        count = min(len(room), len(data), at_once)
        room[:count] = data[:count]
        data = data[count:]
        session.received(count)
        while (response := session.next_response()) is not None:
            found.append(response)
    return found


# -- frames and correlation ids


def test_a_request_has_a_size_a_header_and_the_clients_name() -> None:
    """Kafka's protocol: RequestOrResponse => Size (RequestMessage | ResponseMessage)."""
    head, body = begun().send(Sent(METADATA, 9), MetadataRequest(topics=[]))
    (size,) = struct.unpack_from(">i", head)
    assert size == len(head) + len(body) - 4
    header = read_request_header(head[4:] + body)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.METADATA, 9, "me")


@pytest.mark.parametrize("at_once", [1, 3, 5, 64, 1 << 30])
def test_responses_are_found_however_the_network_cuts_them(at_once: int) -> None:
    session = begun()
    sent = [ask(session) for _ in range(3)]
    found = feed(session, b"".join(answer(number) for number in range(3)), at_once)
    assert [response.sent for response in found] == sent
    assert [response.decode().brokers[0].port for response in found] == [9092] * 3
    assert session.in_flight == {}


def test_a_response_belongs_to_the_request_with_its_correlation_id() -> None:
    """Kafka's protocol: the broker passes the id back. A broker keeps the order; the id is what counts."""
    session = begun()
    first, second = ask(session), ask(session)
    assert list(session.in_flight.values()) == [first, second]
    assert [response.sent for response in feed(session, answer(1) + answer(0))] == [second, first]


@pytest.mark.parametrize("correlation", [4711, 0], ids=["unknown", "answered already"])
def test_a_response_to_nothing_ends_the_connection(correlation: int) -> None:
    session = begun()
    ask(session)
    with pytest.raises(SessionError, match=f"unknown correlation id {correlation}"):
        feed(session, answer(0) + answer(correlation))


def test_correlation_ids_begin_again_after_the_last_one() -> None:
    session = begun()
    session._next_correlation = 0x7FFFFFFF
    sent = [ask(session), ask(session)]
    assert [response.sent for response in feed(session, answer(0x7FFFFFFF) + answer(0))] == sent


@pytest.mark.parametrize("size", [-1, 0, 3, MOST_BYTES + 1])
def test_a_frame_of_an_impossible_size_ends_the_connection(size: int) -> None:
    session = begun()
    ask(session)
    with pytest.raises(SessionError, match=f"a frame of {size} bytes"):
        feed(session, struct.pack(">i", size))


def test_who_is_not_authenticated_yet_may_send_little() -> None:
    session = begun(ready=False)
    ask(session)
    with pytest.raises(SessionError, match="not allowed"):
        feed(session, struct.pack(">i", MOST_BYTES_AT_FIRST + 1))


def test_a_header_that_ends_too_early_ends_the_connection() -> None:
    """Response header v1 has tagged fields (KIP-482)."""
    session = begun()
    ask(session)
    with pytest.raises(SessionError, match="header cannot be read"):
        feed(session, framed(struct.pack(">i", 0)))


def test_a_body_that_does_not_fit_is_told_where_it_is_read() -> None:
    """The frame is whole, so the connection's other responses could still be read; its owner decides."""
    session = begun()
    ask(session)
    [response] = feed(session, framed(struct.pack(">i", 0), b"\0\x01"))
    with pytest.raises(DecodeError):
        response.decode()


# -- memory


def counted(taken: list[int]) -> Callable[[int], memoryview]:
    def take(size: int) -> memoryview:
        taken.append(size)
        return memoryview(bytearray(size))

    return take


def test_a_response_larger_than_the_buffer_is_received_into_its_own_memory() -> None:
    session = begun(read_bytes=64)
    sent = [ask(session), ask(session)]
    topics = [f"topic-{number}" for number in range(100)]
    told = framed(
        write_response_header(METADATA, 9, 0),
        METADATA.response.encode(metadata_told({1: 9092}, topics, {name: [] for name in topics}), 9),
    )
    found = feed(session, told + answer(1))
    assert [response.sent for response in found] == sent
    assert [topic.name for topic in found[0].decode().topics] == topics


def test_memory_for_a_large_response_is_taken_as_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The announced size may be wrong."""
    monkeypatch.setattr(session_module, "ALLOCATED_AT_ONCE_BYTES", 1000)
    taken: list[int] = []
    session = begun(allocate=counted(taken), read_bytes=64)
    ask(session)
    body = bytes(number % 251 for number in range(10_000))
    frame = framed(struct.pack(">i", 0), b"\0", body)
    feed(session, frame[:900])
    assert taken == [1000]
    [response] = feed(session, frame[900:])
    assert taken == [1000, 4000, len(frame) - 4]
    assert bytes(response.frame[response.start :]) == body


def test_nothing_but_its_reader_keeps_a_response() -> None:
    """The memory of large ones is used again (client/network/frames.py), which a circle of references would delay."""
    blocks: list[bytearray] = []

    def take(size: int) -> memoryview:
        blocks.append(bytearray(size))
        return memoryview(blocks[-1])

    session = begun(allocate=take, read_bytes=64)
    ask(session)
    topics = [f"topic-{number}" for number in range(100)]
    body = METADATA.response.encode(metadata_told({1: 9092}, topics, {name: [] for name in topics}), 9)
    found = feed(session, framed(write_response_header(METADATA, 9, 0), body))
    with pytest.raises(BufferError):
        blocks[0].append(0)
    assert len(found.pop().decode().topics) == 100
    blocks[0].append(0)


# -- versions (KIP-35, KIP-511, KIP-584)


def test_versions_and_features_are_learnt() -> None:
    session = begun()
    steps = learn_versions(session, "name", "1.0")
    step = next_step(steps)
    assert step is not None
    request, version = step
    assert (type(request).__name__, version) == ("ApiVersionsRequest", 3)
    assert (request.client_software_name, request.client_software_version) == ("name", "1.0")  # type: ignore[attr-defined]
    features = [FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)]
    assert next_step(steps, versions_told({3: (0, 13)}, finalized_features=features)) is None
    assert session.versions == {3: (0, 13)}
    assert session.features == {"transaction.version": 2}


def test_a_broker_that_does_not_know_the_version_of_apiversions_is_asked_in_v0() -> None:
    """KIP-511: such a broker responds UNSUPPORTED_VERSION in v0, whatever the version of the request."""
    session = begun()
    steps = learn_versions(session, "name", "1.0")
    next_step(steps)
    ask(session, VERSIONS, 3)
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    [response] = feed(session, framed(struct.pack(">i", 0), ApiVersionsResponse.encode(refused, 0)))
    again = next_step(steps, response.decode())
    assert again is not None
    assert again[1] == 0
    assert next_step(steps, versions_told({3: (0, 8)})) is None
    assert session.versions == {3: (0, 8)}


def test_the_header_of_apiversions_never_has_tagged_fields() -> None:
    """KIP-511: its reader does not know yet which versions the broker has."""
    session = begun()
    ask(session, VERSIONS, 3)
    body = ApiVersionsResponse.encode(versions_told({3: (0, 13)}), 3)
    [response] = feed(session, framed(struct.pack(">i", 0), body))
    assert response.start == 4
    assert response.decode().api_keys[0].max_version == 13


def test_a_broker_that_does_not_tell_its_versions_is_of_no_use() -> None:
    steps = learn_versions(begun(), "name", "1.0")
    next_step(steps)
    with pytest.raises(Refused, match="did not return its API versions") as told:
        next_step(steps, ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, api_keys=[]))
    assert (told.value.code, told.value.api) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ApiVersions")


def test_v0_is_asked_for_once() -> None:
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    steps = learn_versions(begun(), "name", "1.0")
    next_step(steps)
    next_step(steps, refused)
    with pytest.raises(Refused, match="did not return its API versions"):
        next_step(steps, refused)


def test_the_highest_version_of_both_sides_is_used() -> None:
    """KIP-35; and within the bounds of the caller."""
    session = begun()
    low, high = METADATA.served
    session.versions = {ApiKey.METADATA: (low, high + 1)}
    assert session.version_of(METADATA) == high
    assert session.version_of(METADATA, at_most=high - 1) == high - 1
    session.versions = {ApiKey.METADATA: (0, high - 1)}
    assert session.version_of(METADATA) == high - 1
    with pytest.raises(Refused, match=f"supports Metadata 0 to {high - 1}; needed is {high} to {high}"):
        session.version_of(METADATA, at_least=high)
    with pytest.raises(Refused, match="does not support Produce"):
        session.version_of(API_BY_NAME["Produce"])


def test_a_version_that_may_change_is_used_only_where_it_is_needed() -> None:
    """Kafka's latestVersionUnstable: brokers offer it with unstable.api.versions.enable only."""
    api = next(api for api in API_BY_KEY.values() if api.unstable is not None)
    unstable = api.unstable
    assert unstable is not None
    session = begun()
    session.versions = {api.key: (0, unstable)}
    assert session.version_of(api) == api.served[1] < unstable
    assert session.version_of(api, at_least=unstable) == unstable


# -- the wrong listener


def test_an_alert_of_tls_in_place_of_the_first_response_names_the_listeners_protocols() -> None:
    """RFC 8446, 5.1 and 6: an alert is a record of type 21, version 3.x; who does not speak TLS gets one."""
    session = begun(ready=False)
    ask(session, VERSIONS, 3)
    with pytest.raises(Refused, match="this listener uses TLS") as told:
        feed(session, b"\x15\x03\x03\x00\x02\x02\x32")
    assert told.value.protocols == ("ssl", "sasl_ssl")


def test_what_looks_like_an_alert_later_is_a_frame_of_a_wrong_size() -> None:
    session = begun()
    ask(session)
    with pytest.raises(SessionError, match="a frame of") as told:
        feed(session, answer(0) + b"\x15\x03\x03\x00\x02\x02\x32")
    assert not isinstance(told.value, Refused)
