"""Requests as clients that nobody here wrote put them on the wire, byte by byte, where they differ from the protocol.

Kafka parses a request and does not ask whether its frame ends there (`RequestContext.parseRequest`); these clients work
with Kafka for that reason only.
"""

import struct
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire

METADATA, OFFSET_COMMIT, OFFSET_FETCH, LIST_GROUPS, API_VERSIONS = 3, 8, 9, 16, 18
CORRELATION_ID = 7


def ask(wire: Wire, api_key: int, version: int, body: str) -> Any:
    """Send a body as it is, under client id `rdkafka`, and return the answer."""
    header = struct.pack(">hhih", api_key, version, CORRELATION_ID, 7) + b"rdkafka"
    frame = header + bytes.fromhex(body)
    wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
    correlation_id, response = wire.receive(api_key, version)
    assert correlation_id == CORRELATION_ID
    return response


@pytest.fixture
def wire(broker_of_module: BrokerProcess) -> Wire:
    """A connection; topic `known` is there, and group `g` committed offset 5 of it."""
    with Wire(broker_of_module.connect()) as wire:
        if "known" not in {topic.name for topic in wire.call(METADATA, 9, MetadataRequest(topics=None)).topics}:
            wire.create_topic("known")
            assert wire.commit_offsets("g", "known", 5, version=5) is ErrorCode.NONE
        yield wire


def test_librdkafka_1_0_asks_for_api_versions_with_an_array_too_many(wire: Wire) -> None:
    """ApiVersions v0 has no fields; librdkafka 1.0 sends an empty array, first of all on every connection."""
    response = ask(wire, API_VERSIONS, 0, "00000000")
    assert response.error_code == ErrorCode.NONE
    assert response.api_keys


@pytest.mark.parametrize(
    "body",
    ["00 01 00 00", "00 03 07537461626c65 06456d707479 00 00"],
    ids=["all states", "two states"],
)
def test_librdkafka_2_0_lists_groups_with_tags_too_many(wire: Wire, body: str) -> None:
    response = ask(wire, LIST_GROUPS, 4, body)
    assert response.error_code == ErrorCode.NONE
    assert [group.group_id for group in response.groups] == ["g"]


@pytest.mark.parametrize("stable", ["00", "01"])
def test_librdkafka_2_0_fetches_all_offsets_of_a_group_with_a_wide_null(wire: Wire, stable: str) -> None:
    """OffsetFetch v7: a null of four bytes for an array that counts in one; requireStable comes too late to be read."""
    response = ask(wire, OFFSET_FETCH, 7, f"00 0267 00000000 {stable} 00")
    assert response.error_code == ErrorCode.NONE
    committed = {topic.name: topic.partitions[0].committed_offset for topic in response.topics}
    assert committed == {"known": 5}


@pytest.mark.parametrize(("version", "body"), [(9, "00 00000000 01 00 00 00"), (13, "00 00000000 01 00 00")])
def test_librdkafka_2_asks_for_all_topics_with_a_wide_null(wire: Wire, version: int, body: str) -> None:
    """Metadata v9 and later (librdkafka issue 5049)."""
    response = ask(wire, METADATA, version, body)
    assert "known" in {topic.name for topic in response.topics}


def test_bytes_behind_a_request_do_not_reach_the_next_one(wire: Wire) -> None:
    """A frame's length alone says where the next request begins."""
    for _ in range(2):
        assert ask(wire, METADATA, 1, "ffffffff" + b"garbage".hex()).brokers
