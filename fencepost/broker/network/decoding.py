"""From a frame to its request: header, route, body. A long frame is decoded in steps."""

from collections.abc import Generator
from typing import Any

from fencepost.broker.network.context import RequestContext, Session
from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.large_requests import LARGE_FRAME_BYTES
from fencepost.broker.ports import Broker
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.stepwise import Steps

_API_VERSIONS = ApiKey.API_VERSIONS  # a global: reading a member read from its enum costs twenty times as much


def start_decoding(
    node: Broker, session: Session, frame: memoryview
) -> tuple[Route, Any, RequestContext, Steps | None]:
    """Decode a frame: its route, its request, its context, and None. Raises DecodeError and UnservedRequest.

    If it has many elements, the request is None, and the caller gets it as the result of the returned steps.
    """
    key, version, correlation_id, client_id, body_start = read_request_header(frame)
    context = RequestContext(key, version, correlation_id, client_id, session)
    if key == _API_VERSIONS and not API_BY_KEY[key].serves(version):
        # KIP-511: the response has the oldest version; the body is not decoded
        context.api_version = 0
        return node.dispatch.route(key, 0), None, context, None
    route = node.dispatch.route(key, version)
    if len(frame) > LARGE_FRAME_BYTES:
        steps = _in_steps(node.large_requests.decode(route, frame, body_start), route, frame, body_start)
        try:
            next(steps)
        except StopIteration as done:  # many bytes, but few elements
            return route, done.value, context, None
        return route, None, context, steps
    try:
        request, _ = route.decode(frame, body_start)
    except Exception as error:  # noqa: BLE001 - whatever the error is, the request is refused
        route.api.request.refuse(frame, version, body_start, error)
    return route, request, context, None


def _in_steps(steps: Steps, route: Route, frame: memoryview, body_start: int) -> Generator[None, None, Any]:
    try:
        request, _ = yield from steps
    except Exception as error:  # noqa: BLE001 - whatever the error is, the request is refused
        route.api.request.refuse(frame, route.version, body_start, error)
    return request
