"""A standby forwards to the active broker what clients may ask any broker for.

Kafka's brokers forward changes of the metadata to the controller. Clients rely on that: they send such requests to any
broker. Only requests from plaintext listeners without an authorizer are forwarded, because the active broker would not
know who the client is. Otherwise the standby answers with an error that clients retry, at another broker in the end.
"""

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import trio

from fencepost.broker.network.context import Endpoint, RequestContext
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.network.reply import Ready, Reply, Response, ready
from fencepost.broker.security.security_protocol import SecurityProtocol
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api03_metadata import MetadataResponse
from fencepost.protocol.registry import API_BY_KEY

CHANGES = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""Changes of the metadata."""
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE})
"""A topic that this broker does not know, or not yet."""
ANSWER_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Cluster(Protocol):
    """Where the active broker is."""

    def active_endpoint(self, listener: str) -> Endpoint | None:
        """The active broker's listener of this name; None if it is not known."""

    async def read_metadata(self, node: Any) -> None:
        """Read what the controller has written until now, unless this broker is the controller."""


def forwarded(cluster: Cluster, api_key: int, handle: Handler) -> Handler:
    """The handler of an API, which passes to the controller what only that can do."""
    if api_key not in CHANGES | {ApiKey.METADATA}:
        return handle

    def forwarding(node: Any, request: Any, context: RequestContext) -> Reply:
        session = context.session
        target = cluster.active_endpoint(session.listener_name)
        trusted = session.security_protocol is SecurityProtocol.PLAINTEXT and node.authorizer is None
        if target is None or not trusted:
            own = partial(handle, node, request, context)
            return _newest(cluster, node, own) if api_key == ApiKey.METADATA else own()
        own = partial(handle, node, request, context)
        if api_key == ApiKey.METADATA:
            return _created(target, request, context, partial(_newest, cluster, node, own))
        return _forward(target, request, context, own)

    return forwarding


async def _newest(cluster: Cluster, node: Any, own: Callable[[], Reply]) -> Ready:
    """The answer to Metadata; if this broker does not know a topic, after it has read what the controller has written.

    So a client that has created a topic finds it at every broker.
    """
    answer = await ready(own())
    if not isinstance(answer, MetadataResponse) or not any(one.error_code in UNKNOWN for one in answer.topics or ()):
        return answer
    await cluster.read_metadata(node)
    return await ready(own())


async def _created(target: Endpoint, request: Any, context: RequestContext, own: Callable[[], Reply]) -> Ready:
    """The standby's own answer; the active broker's if a topic is missing that the request may create."""
    answer = await ready(own())
    if isinstance(answer, MetadataResponse) and any(
        topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE for topic in answer.topics or ()
    ):
        return await _forward(target, request, context, lambda: answer)
    return answer


async def _forward(target: Endpoint, request: Any, context: RequestContext, own: Callable[[], Reply]) -> Ready:
    """The active broker's answer; if it cannot be had, the standby's own."""
    try:
        with trio.fail_after(ANSWER_SECONDS):
            return await _ask(target, request, context)
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
        logger.warning("a request could not be forwarded to the active broker at %s: %s", target, error)
        return await ready(own())


async def _ask(target: Endpoint, request: Any, context: RequestContext) -> Response:
    """Send the request on a connection of its own: such requests are rare."""
    api, version = API_BY_KEY[context.api_key], context.api_version
    body = write_request_header(api, version, context.correlation_id, context.client_id)
    body += api.request.encode(request, version)
    async with await trio.open_tcp_stream(target.host, target.port) as stream:
        await stream.send_all(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await _exactly(stream, 4))
        frame = await _exactly(stream, size)
    _, start = read_response_header(api, version, frame)
    response: Response = api.response.decode(frame, version, start)
    return response


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        more = await stream.receive_some(count - len(received))
        if not more:
            raise ConnectionResetError("the connection ended before the answer")
        received += more
    return bytes(received)
