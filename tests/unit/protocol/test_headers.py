"""Request and response headers: versions 0 to 2, the ApiVersions exception, and frames that are no requests."""

import struct

import pytest

from fencepost.protocol.headers import (
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)
from fencepost.protocol.registry import API_BY_KEY, API_BY_NAME
from fencepost.protocol.schema import DecodeError


@pytest.mark.parametrize("client_id", [None, "", "billing", "ж" * 100])
def test_every_request_header_comes_back(client_id: str | None) -> None:
    for api in API_BY_KEY.values():
        low, high = api.with_unstable().served
        for version in range(low, high + 1):
            frame = write_request_header(api, version, 77, client_id)
            header = read_request_header(frame + b"body")
            assert header == (api.key, version, 77, client_id, len(frame))


def test_flexible_requests_have_header_2_and_answers_header_1() -> None:
    """KIP-482: the first flexible version of Metadata is 9."""
    metadata = API_BY_NAME["Metadata"]
    assert write_request_header(metadata, 8, 1, "a")[-1:] == b"a"
    assert write_request_header(metadata, 9, 1, "a")[-1:] == b"\0"
    assert write_response_header(metadata, 8, 1) == struct.pack(">i", 1)
    assert write_response_header(metadata, 9, 1) == struct.pack(">ib", 1, 0)
    assert read_response_header(metadata, 9, struct.pack(">ibq", 1, 0, 5)) == (1, 5)


def test_the_answer_to_apiversions_always_has_header_0() -> None:
    """KIP-511: its reader cannot know yet which versions we speak."""
    api = API_BY_NAME["ApiVersions"]
    assert write_request_header(api, 3, 1, None)[-1:] == b"\0"
    assert write_response_header(api, 3, 1) == struct.pack(">i", 1)


def test_unknown_apis_and_versions_still_give_the_correlation_id() -> None:
    """They are refused by name and number, not by a parse error."""
    header = read_request_header(struct.pack(">hhih", 999, 3, 42, -1))
    assert (header.api_key, header.api_version, header.correlation_id) == (999, 3, 42)
    assert read_request_header(struct.pack(">hhih", 18, 99, 43, -1)).correlation_id == 43


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0" * 9,
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 500) + b"x",
        struct.pack(">hhih", 3, 1, 1, 1) + b"\xff",
        struct.pack(">hhih", 3, 9, 1, -1),
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x00\x7f",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\xff\xff\xff",
    ],
    ids=["empty", "short", "length", "past the end", "utf-8", "no tags", "tag past the end", "endless varint"],
)
def test_what_is_no_request_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError, match="RequestHeader"):
        read_request_header(frame)
