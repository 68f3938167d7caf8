"""Request and response headers, for both roles."""

import struct
from typing import Any, NamedTuple

from fencepost.protocol.codec_words import TAGS_MAX
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.varints import Malformed, get_varint

_START = struct.Struct(">hhih")
_START_BYTES = _START.size
_CORRELATION = struct.Struct(">i")
NULL_CLIENT_ID = -1
_FLEXIBLE = frozenset(
    (api.key, version)
    for api in API_BY_KEY.values()
    for version in range(max(api.flexible_since, api.served[0]), max(api.served[1], api.unstable or 0) + 1)
)
"""(API key, version) of the known requests whose header ends with tagged fields."""


class RequestHeader(NamedTuple):
    """The header of a request. `body_start` is the position of the body in the buffer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def read_request_header(buffer: Any) -> RequestHeader:
    """The header of one request frame (without its length prefix), up to the end of `buffer`.

    The header of an unknown API or a later version is read up to the client id: its `body_start` has no meaning, but
    its correlation id is right, so that the request can be refused (KIP-511). Raises DecodeError.
    """
    try:
        api_key, version, correlation_id, size = _START.unpack_from(buffer)
    except struct.error as error:
        why = f"{len(buffer)} bytes, the least is {_START.size}"
        raise DecodeError("RequestHeader", 1, why, offset=0) from error
    position = _START_BYTES
    client_id = None
    if size != NULL_CLIENT_ID:
        end = position + size
        if size < 0 or end > len(buffer):
            raise DecodeError("RequestHeader", 1, f"a length of {size}", "client_id", position)
        try:
            client_id = str(buffer[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("RequestHeader", 1, str(error), "client_id", position) from error
        position = end
    if (api_key, version) in _FLEXIBLE:
        if position < len(buffer) and not buffer[position]:
            position += 1  # no tagged fields: nearly always
        else:
            position = skip_tags(memoryview(buffer), position)
    return tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id, position))


def skip_tags(view: memoryview, position: int) -> int:
    """Skip a tagged-field section; return its end. Raises DecodeError."""
    try:
        count, position = get_varint(view, position)
        if count > TAGS_MAX:
            raise Malformed
        for _ in range(count):
            _, position = get_varint(view, position)
            size, position = get_varint(view, position)
            position += size
            if position > len(view):
                raise Malformed
    except (IndexError, Malformed) as error:
        raise DecodeError("RequestHeader", 2, "the tagged fields do not fit", "_tags", position) from error
    return position


def write_request_header(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request, in the header version for `api` at `version`."""
    encoded = b"" if client_id is None else client_id.encode()
    size = NULL_CLIENT_ID if client_id is None else len(encoded)
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return _START.pack(api.key, version, correlation_id, size) + encoded + tags


def write_response_header(api: Api, version: int, correlation_id: int) -> bytes:
    tags = b"\0" if api.response_header_version(version) else b""
    return _CORRELATION.pack(correlation_id) + tags


def read_response_header(api: Api, version: int, buffer: Any) -> tuple[int, int]:
    """The correlation id of a response frame, and the position of its body. Raises DecodeError."""
    view = memoryview(buffer)
    if len(view) < _CORRELATION.size:
        raise DecodeError("ResponseHeader", 0, f"{len(view)} bytes, the least is 4", offset=0)
    (correlation_id,) = _CORRELATION.unpack_from(view)
    position = _CORRELATION.size
    if api.response_header_version(version):
        position = skip_tags(view, position)
    return correlation_id, position
