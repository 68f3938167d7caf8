"""The registry as an application of ASGI: bounded bodies, logins, and every error as JSON."""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

import trio

from fencepost.client import AuthenticationError, KafkaError
from fencepost.client.errors import AuthorizationError
from fencepost.console.connections import TooManyGuesses
from fencepost.schema_registry.answers import Request, Text, find_route
from fencepost.schema_registry.errors import RegistryError
from fencepost.schema_registry.logins import Logins, LoginWanted
from fencepost.schema_registry.store import STORE_ERROR, Store

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
BODY_BYTES_MAX: Final = 1 << 20
"""About what a record of `_schemas` may have."""
BODY_SECONDS: Final = 10.0


class _Response(NamedTuple):
    status: int
    body: str
    headers: Mapping[str, str] = {}


class Application:
    """Answers each request with the rights of its user."""

    def __init__(self, store: Store, logins: Logins) -> None:
        self._store = store
        self._logins = logins

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "the server speaks nothing else"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            body = await _body(headers, receive)
            answer = await self._answer(scope, headers, body)
            text = answer.text if isinstance(answer, Text) else json.dumps(answer, separators=(",", ":"))
            response = _Response(200, text)
        except Exception as error:  # noqa: BLE001 - every request is answered
            response = _failed(error)
        encoded = response.body.encode("utf-8", "replace")
        given = {"content-type": CONTENT_TYPE, "content-length": str(len(encoded)), **response.headers}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        await send({"type": "http.response.body", "body": encoded})

    async def _answer(self, scope: Any, headers: Mapping[str, str], body: bytes) -> Any:
        """The answer. Raises RegistryError, LoginWanted, TooManyGuesses and KafkaError."""
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            raise RegistryError(403, "A page of a web site may not use the registry.")
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        segments = [unquote(one) for one in path.strip("/").split("/")]  # a subject may have a slash in it: %2F
        # The server sends no body in an answer to HEAD.
        route, names = find_route("GET" if scope["method"] == "HEAD" else scope["method"], segments)
        query = parse_qs(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        request = Request(names, query, _object(body))
        address = (scope.get("client") or ("",))[0]
        admin = (await self._logins.connection(headers.get("authorization"), address)).parts
        if route.how == "change":
            return await self._store.change(admin, lambda state: route.answer(state, request))
        if route.how == "compute":
            return await self._store.compute(admin, lambda state: route.answer(state, request))
        return route.answer(await self._store.read(admin), request)


async def _body(headers: Mapping[str, str], receive: Any) -> bytes:
    """The request's body. Raises RegistryError (400, 408, 413)."""
    length = headers.get("content-length", "0")
    refused = not length.isdecimal() or int(length) > BODY_BYTES_MAX
    body = bytearray()
    try:
        with trio.fail_after(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RegistryError(400, "The client left.")
                body += message.get("body", b"")
                if len(body) > BODY_BYTES_MAX * (2 if refused else 1):
                    refused = True
                    break
                if not message.get("more_body"):
                    break
    except trio.TooSlowError:
        raise RegistryError(408, "The body did not arrive in time.") from None
    if refused:  # its body is read within bounds: who still sends when the connection closes reads no answer
        raise RegistryError(413, f"A body has at most {BODY_BYTES_MAX} bytes.")
    return bytes(body)


def _object(body: bytes) -> dict[str, Any]:
    """The body's JSON object, empty if there is no body. Raises RegistryError (400)."""
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair is not a text
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RegistryError(400, "The body is not a JSON object.")
    return found


def _failed(error: Exception) -> _Response:
    """The response for what an answer raised."""
    headers: dict[str, str] = {}
    match error:
        case RegistryError():
            refusal = error
        case LoginWanted() | AuthenticationError():
            refusal, headers = RegistryError(401, "Unauthorized"), {"www-authenticate": 'Basic realm="schema registry"'}
        case TooManyGuesses(wait=wait):
            refusal = RegistryError(429, "Too many wrong passwords")
            headers = {"retry-after": str(round(wait) + 1)}
        case KafkaError() if _is_refusal(error):
            refusal = RegistryError(40301, f"The user lacks a right on the topic _schemas: {error}")
        case KafkaError():
            refusal = RegistryError(STORE_ERROR, f"Error in the backend Kafka store: {error}")
            logger.warning("a request failed: the broker does not serve _schemas cause=%s", error)
        case _:
            logger.error("a request failed cause=%r", error, exc_info=error)
            refusal = RegistryError(500, "Internal Server Error")
    return _Response(refusal.status, json.dumps({"error_code": refusal.code, "message": str(refusal)}), headers)


def _is_refusal(error: KafkaError) -> bool:
    return any(isinstance(one, AuthorizationError) for one in (error, *getattr(error, "errors", {}).values()))
