"""Envelope (58): carry out a client's request that another broker of the cluster received (KIP-590).

It is checked with the client's rights and quotas. Only brokers may send it, because the sender can name any client.
"""

import logging
from typing import Any

from fencepost.broker.network.context import CloseConnection, RequestContext, Session
from fencepost.broker.network.dispatch import Route, UnservedRequest
from fencepost.broker.network.metering import meter_of
from fencepost.broker.network.reply import Durable, Encoded, Ready, ready
from fencepost.broker.peers.envelope import read_sender
from fencepost.broker.peers.forwarding import CHANGES, FORWARDED
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only
from fencepost.broker.security.gate import refusal
from fencepost.broker.security.principal import CLUSTER
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header, write_response_header
from fencepost.protocol.messages.api58_envelope import EnvelopeRequest, EnvelopeResponse
from fencepost.protocol.schema import DecodeError, ResponseValue

logger = logging.getLogger(__name__)


async def handle(node: Broker, request: EnvelopeRequest, context: RequestContext) -> ResponseValue:
    if (refused := brokers_only(node, request, context)) is not None:
        return refused
    if not node.place.mechanisms:
        raise CloseConnection("Envelope is a request between brokers of a cluster, and this broker is alone")
    if node.authorizer is not None and context.principal != CLUSTER:
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    data = bytes(request.request_data)
    try:
        sender = read_sender(request)
        key, version, correlation_id, client_id, start = read_request_header(data)
        if key not in FORWARDED:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if key in CHANGES and not node.place.is_controller:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        route = node.dispatch.route(key, version)
        inner = route.api.request.decode(data, version, start)
    except (DecodeError, UnservedRequest) as error:
        logger.warning("an envelope of %s cannot be read, it is refused: %s", context.client_host, error)
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    session = Session(
        sender.host,
        context.listener,
        sender.principal,
        listener_name=context.session.listener_name,
        security_protocol=context.session.security_protocol,
    )
    session.forwarded = True
    inner_context = RequestContext(key, version, correlation_id, client_id, session)
    response = await _handled(node, route, inner, inner_context, len(data))
    head = write_response_header(route.api, version, correlation_id)
    return EnvelopeResponse(response_data=head + _encoded(route, response))


async def _handled(node: Broker, route: Route, request: Any, context: RequestContext, size: int) -> Ready:
    """The answer, as a connection of the client would send it: after its rights are checked, when it is durable."""
    refused = refusal(node, request, context) if node.authorizer is not None else None
    if refused is not None:
        return refused
    quotas = node.quotas
    meter = context.meter = None if quotas is None else meter_of(node, quotas, route, request, context, size)
    reply = route.handle(node, request, context)
    answer = await ready(reply if meter is None else meter.handled(reply))
    if isinstance(answer, Durable) and await node.flusher.wait_all(answer.tickets):
        answer.revise()
    return answer if meter is None else meter.finish(answer)[0]


def _encoded(route: Route, answer: Ready) -> bytes:
    if isinstance(answer, Durable):
        answer = answer.response
    assert answer is not None, "what is forwarded has an answer"
    parts = answer.parts if isinstance(answer, Encoded) else route.api.response.encode_parts(answer, route.version)
    return b"".join(map(bytes, parts))
