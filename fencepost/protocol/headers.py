"""Request and response headers, for both roles."""

import struct
from typing import Any, NamedTuple

from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.varints import Malformed, get_varint

_START = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
NULL_CLIENT_ID = -1


class RequestHeader(NamedTuple):
    """Who asks what. `body_start` is where the body begins in the buffer that was read."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def read_request_header(buffer: Any, start: int = 0) -> RequestHeader:
    """The header of one request frame (without its length prefix), up to the end of `buffer`.

    An API that is not in the registry, or a version past ours, is read as far as the client id: its `body_start` means
    nothing, but the correlation id is right, so that it can be refused (KIP-511). Raises DecodeError.
    """
    view = memoryview(buffer)
    if len(view) - start < _START.size:
        raise DecodeError("RequestHeader", 1, f"{len(view) - start} bytes, the least is {_START.size}", offset=start)
    api_key, version, correlation_id, size = _START.unpack_from(view, start)
    position = start + _START.size
    if size < -1 or position + size > len(view):
        raise DecodeError("RequestHeader", 1, f"a length of {size}", "client_id", position)
    client_id = None
    if size >= 0:
        try:
            client_id = str(view[position : position + size], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("RequestHeader", 1, str(error), "client_id", position) from error
        position += size
    api = API_BY_KEY.get(api_key)
    if api is not None and version >= api.flexible_since and api.reads(version):
        if position < len(view) and not view[position]:
            position += 1  # no tagged fields, as nearly always
        else:
            position = skip_tags(view, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def skip_tags(view: memoryview, position: int) -> int:
    """Step over a tagged-field section. Raises DecodeError."""
    try:
        count, position = get_varint(view, position)
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
    """The header of a request, in the version that `api` at `version` asks for."""
    encoded = b"" if client_id is None else client_id.encode()
    size = NULL_CLIENT_ID if client_id is None else len(encoded)
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return _START.pack(api.key, version, correlation_id, size) + encoded + tags


def write_response_header(api: Api, version: int, correlation_id: int) -> bytes:
    tags = b"\0" if api.response_header_version(version) else b""
    return _CORRELATION.pack(correlation_id) + tags


def read_response_header(api: Api, version: int, buffer: Any, start: int = 0) -> tuple[int, int]:
    """The correlation id of a response frame, and where its body begins. Raises DecodeError."""
    view = memoryview(buffer)
    if len(view) - start < _CORRELATION.size:
        raise DecodeError("ResponseHeader", 0, f"{len(view) - start} bytes, the least is 4", offset=start)
    (correlation_id,) = _CORRELATION.unpack_from(view, start)
    position = start + _CORRELATION.size
    if api.response_header_version(version):
        position = skip_tags(view, position)
    return correlation_id, position
