"""The names that a broker knows, for a shell that waits for them.

A plain connection is a blocking socket here: the client's imports would take longer than everything else. A broker with
TLS or a login is asked by the client.
"""

import socket
import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.client_options import properties
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api16_list_groups import ListGroupsRequest
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import DecodeError

if TYPE_CHECKING:
    from fencepost.client import Client

PATIENCE_SECONDS = 1.0
CLIENT_PATIENCE_SECONDS = 3.0
CLIENT_ID = "fencepost-completion"
METADATA_VERSION, LIST_GROUPS_VERSION, LIST_TRANSACTIONS_VERSION = 4, 2, 0
"""Versions that every broker has, so that no ApiVersions request is needed."""
_SIZE = struct.Struct(">i")
_FAILURES = (OSError, DecodeError, struct.error)


def ask(kind: str, context: click.Context) -> list[str]:
    """The "topics", "groups" or "transactional ids" of the broker that the command line names; none if asking fails."""
    bootstrap = context.params.get("bootstrap")
    if bootstrap is None:
        return []
    try:
        given = properties(context)
    except click.UsageError:
        return []
    if any(name.startswith(("security", "sasl", "ssl")) for name in given):
        return _ask_by_client(kind, bootstrap, context)
    deadline = time.monotonic() + PATIENCE_SECONDS
    for server in bootstrap.split(","):
        host, _, port = server.rpartition("://")[2].rpartition(":")
        try:
            return _ask_plainly(kind, (host.strip("[]"), int(port)), deadline)
        except (*_FAILURES, ValueError):
            continue
    return []


def _ask_plainly(kind: str, address: tuple[str, int], deadline: float) -> list[str]:
    topics: list[Any] | None = None if kind == "topics" else []
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    metadata = _call(address, ApiKey.METADATA, METADATA_VERSION, request, deadline)
    if kind == "topics":
        return [topic.name for topic in metadata.topics]
    return [name for broker in metadata.brokers for name in _of_broker(kind, (broker.host, broker.port), deadline)]


def _of_broker(kind: str, address: tuple[str, int], deadline: float) -> Iterator[str]:
    """The names that one broker knows; none if it does not answer."""
    try:
        if kind == "groups":
            groups = _call(address, ApiKey.LIST_GROUPS, LIST_GROUPS_VERSION, ListGroupsRequest(), deadline)
            yield from (group.group_id for group in groups.groups)
        else:
            listing = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            found = _call(address, ApiKey.LIST_TRANSACTIONS, LIST_TRANSACTIONS_VERSION, listing, deadline)
            yield from (one.transactional_id for one in found.transaction_states)
    except _FAILURES:
        return


def _call(address: tuple[str, int], key: int, version: int, request: Any, deadline: float) -> Any:
    """One request on a connection of its own. Raises OSError and DecodeError."""
    api = API_BY_KEY[key]
    body = write_request_header(api, version, 1, CLIENT_ID) + api.request.encode(request, version)
    with socket.create_connection(address, _left(deadline)) as connection:
        connection.sendall(_SIZE.pack(len(body)) + body)
        (size,) = _SIZE.unpack(_received(connection, _SIZE.size, deadline))
        frame = _received(connection, size, deadline)
    _, start = read_response_header(api, version, frame)
    return api.response.decode(frame, version, start)


def _received(connection: socket.socket, size: int, deadline: float) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        connection.settimeout(_left(deadline))
        piece = connection.recv(min(size - len(pieces), 1 << 20))
        if not piece:
            raise ConnectionError("closed by the broker")
        pieces += piece
    return bytes(pieces)


def _left(deadline: float) -> float:
    """The seconds that are left. Raises TimeoutError if none are."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _ask_by_client(kind: str, bootstrap: str, context: click.Context) -> list[str]:
    import trio

    from fencepost.cli.connect import client_config
    from fencepost.client import Client, KafkaError

    async def query() -> list[str]:
        with trio.move_on_after(CLIENT_PATIENCE_SECONDS):
            async with Client.from_config(config) as kafka:
                return await _names_by(kafka, kind)
        return []

    try:
        with context:
            config = client_config(bootstrap, CLIENT_PATIENCE_SECONDS, CLIENT_ID)
        return trio.run(query)
    except (KafkaError, OSError, BaseExceptionGroup):
        return []


async def _names_by(kafka: "Client", kind: str) -> list[str]:
    async with kafka.admin() as admin:
        match kind:
            case "topics":
                return list(await admin.describe_topics())
            case "groups":
                return [group.group_id for group in await admin.list_groups()]
            case _:
                return [one.transactional_id for one in await admin.list_transactions()]
