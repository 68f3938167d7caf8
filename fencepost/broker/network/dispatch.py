"""From a frame to its handler and its request. The broker serves and advertises an API if its handler module exists."""

import importlib
import pkgutil
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from fencepost.broker import handlers
from fencepost.broker.network.context import RequestContext, Session
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.compiler import DecodeFunction, EncodeFunction
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.stepwise import Steps

Handler = Callable[["Broker", Any, RequestContext], Reply]
"""Takes the broker, the request, and its context. It is a plain function if it can respond at once, else a coroutine
function."""

LARGE_FRAME_BYTES = 16 << 10
"""Frames above this size are decoded in steps. A shorter one has too few elements to keep the loop busy."""
_API_VERSIONS = ApiKey.API_VERSIONS  # a global: reading a member from its enum costs twenty times as much

NON_BLOCKING = frozenset(
    {ApiKey.PRODUCE, ApiKey.FIND_COORDINATOR, ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_PRODUCERS}
)
"""APIs whose handlers never wait for other clients or for time. Queued responses may wait for such a handler, so that
one send carries all. Before any other handler runs, the queued responses are sent."""


class UnservedRequest(Exception):
    """An API key or version that is not served; the broker closes the connection, as Kafka does."""


class RepeatedRequests(Protocol):
    """The requests of one API that one connection repeats, kept decoded by the bytes that they have in common."""

    def find(self, frame: memoryview) -> "tuple[Route, Any, RequestContext] | None":
        """Read a frame that repeats a known request. None: the frame has to be decoded."""

    def learn(self, frame: memoryview, route: "Route", request: Any, context: RequestContext) -> None:
        """Keep a decoded request, if later frames may repeat it."""


class Route(NamedTuple):
    """The handler, decoder and encoder of one version of an API."""

    api: Api
    version: int
    handle: Handler
    non_blocking: bool
    decode: DecodeFunction
    """The generated decoder of the request. After an error, `api.request.decode_prefix` raises one that explains."""
    encode: EncodeFunction
    """The generated encoder of the response. After an error, `api.response.encode_parts` raises one that explains."""
    header_end: bytes
    """The bytes after the correlation id in a response's header."""
    repeated: Callable[[], RepeatedRequests] | None
    """Makes a connection's table of repeated requests; None: every request is decoded."""


class Dispatch:
    """The table of served APIs. Handlers are imported on first use, which makes start-up shorter.

    With `unstable` (`unstable.api.versions.enable`) it also serves versions that Kafka may still change.
    """

    def __init__(
        self, *, unstable: bool = False, wrap: Callable[[int, Handler], Handler] = lambda api_key, handle: handle
    ) -> None:
        """`wrap` returns the handler to use in place of that of an API."""
        self._wrap = wrap
        found = (module.name for module in pkgutil.iter_modules(handlers.__path__) if module.name.startswith("api"))
        names = set(found)
        apis = {key: api.with_unstable() if unstable else api for key, api in API_BY_KEY.items()}
        self._apis = {key: api for key, api in apis.items() if api.module_name in names and api.serves(api.served[0])}
        self._routes: dict[tuple[int, int], Route] = {}

    @property
    def served(self) -> list[Api]:
        """The APIs that ApiVersions names, by key: those that have a handler, except Envelope, as in Kafka."""
        return [self._apis[key] for key in sorted(self._apis) if key != ApiKey.ENVELOPE]

    def route(self, api_key: int, version: int) -> Route:
        """The route of one request. Raises UnservedRequest, which names the API and the version."""
        return self._routes.get((api_key, version)) or self._load(api_key, version)

    def _load(self, api_key: int, version: int) -> Route:
        api = self._apis.get(api_key)
        if api is None:
            raise UnservedRequest(f"API key {api_key} is not served")
        if not api.serves(version):
            lowest, highest = api.served
            raise UnservedRequest(f"{api.name} version {version} is not served ({lowest} to {highest} are)")
        module = importlib.import_module(f"{handlers.__name__}.{api.module_name}")
        route = self._routes[api_key, version] = Route(
            api,
            version,
            self._wrap(api_key, module.handle),
            api_key in NON_BLOCKING,
            api.request.decoder(version),
            api.response.encoder(version),
            b"\0" if api.response_header_version(version) else b"",
            getattr(module, "repeated", None),
        )
        return route


def start_decoding(
    node: "Broker", session: Session, frame: memoryview
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
