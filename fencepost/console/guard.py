"""What every request passes: the host's name, the size of a form, a session, the token of a form, and the headers."""

import contextlib
import ipaddress
import re
import secrets
from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl, quote

import trio
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fencepost.client import KafkaError
from fencepost.console.connections import Session
from fencepost.console.state import console_of, error_page

FORM_BYTES_MAX: Final = 1 << 20
FIELDS_MAX: Final = 20_000
FIELD_CHARACTERS_MAX: Final = 8000
FORM_SECONDS: Final = 10.0
DISCARD_SECONDS: Final = 1.0
URL_CHARACTERS_MAX: Final = 4000
OPEN_PATHS: Final = ("/login", "/static/", "/health")
"""What is served without a session."""
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        b" form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?")


def cookie_name(request: Request) -> str:
    """The name of the session's cookie. Browsers send cookies to all ports of a host, so it has the port."""
    match = _HOST.fullmatch(request.headers.get("host", ""))
    return f"fencepost_console_{((match and match[2]) or ':').removeprefix(':')}"


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address, localhost or one of these names.

    A page of another site that lets its own name point here (DNS rebinding) sends that name.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1].strip("[]").lower()
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class SecurityHeaders:
    """Adds the headers to every response, those of errors, too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)


class Guard:
    """Refuses what is not from the console's own pages, and finds or begins the browser's session."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        response = _refusal(request)
        if response is None and not request.url.path.startswith(OPEN_PATHS):
            response = await self._with_session(request)
        if response is not None:
            await _discard(request)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, _with_cookie(request, send))

    async def _with_session(self, request: Request) -> Response | None:
        """Give the request its session; returns the response if it gets none."""
        sessions = console_of(request).sessions
        session = sessions.find(request.cookies.get(cookie_name(request)))
        if session is None and sessions.login:
            if request.method != "GET" or request.url.path.startswith(("/live", "/data/")):
                return PlainTextResponse("your session has ended; log in again\n", 401)
            back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?to={quote(back, safe='')}", 303)
        if session is None:
            try:
                session = await sessions.begin()
            except KafkaError as error:
                return await error_page(request, error)
        request.state.session = session
        return None


def _with_cookie(request: Request, send: Send) -> Send:
    """Sets the cookie if the browser's session is new: begun by this request, or by a login."""

    async def with_cookie(message: Message) -> None:
        session: Session | None = getattr(request.state, "session", None)
        begins = message["type"] == "http.response.start"
        if begins and session is not None and session.id != request.cookies.get(cookie_name(request)):
            carrier = Response()
            secure = request.url.scheme == "https"
            carrier.set_cookie(cookie_name(request), session.id, httponly=True, samesite="strict", secure=secure)
            cookies = [(name, value) for name, value in carrier.raw_headers if name == b"set-cookie"]
            message["headers"] = [*message.get("headers", ()), *cookies]
        await send(message)

    return with_cookie


def _refusal(request: Request) -> Response | None:
    """Why a request is refused before its body is read; None if it is not."""
    host = request.headers.get("host", "")
    if not is_own_host(host, console_of(request).hosts):
        return PlainTextResponse("this is not a name of the console; --host NAME allows one\n", 421)
    if len(str(request.url)) > URL_CHARACTERS_MAX:
        return PlainTextResponse(f"a URL has at most {URL_CHARACTERS_MAX} characters\n", 414)
    if request.headers.get("sec-fetch-site") == "cross-site" and request.headers.get("sec-fetch-mode") != "navigate":
        return PlainTextResponse("the request is not from this console\n", 403)
    if request.method in ("GET", "HEAD"):
        return None
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:  # a proxy may have another scheme
        return PlainTextResponse("the form is not from this console\n", 403)
    length = request.headers.get("content-length", "")
    if length and "transfer-encoding" in request.headers:  # a proxy may believe the other one (RFC 9112, 6.3)
        return PlainTextResponse("a request has a Content-Length or a Transfer-Encoding, not both\n", 400)
    if not length.isdigit():
        return PlainTextResponse("a form needs a Content-Length\n", 411)
    if int(length) > FORM_BYTES_MAX:
        return PlainTextResponse(f"a form has at most {FORM_BYTES_MAX} bytes\n", 413)
    return None


async def _discard(request: Request) -> None:
    """Read the body of a refused request within bounds: a browser that still sends when the connection closes never
    reads the response.
    """
    left = 2 * FORM_BYTES_MAX
    with trio.move_on_after(DISCARD_SECONDS), contextlib.suppress(ClientDisconnect):
        async for piece in request.stream():
            left -= len(piece)
            if left < 0:
                return


async def fields_of(request: Request) -> FormData:
    """The fields of a form that a page sent, in the usual encoding of forms. Raises HTTPException (400, 408, 413)."""
    body = bytearray()
    try:
        with trio.fail_after(FORM_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > FORM_BYTES_MAX:  # whatever its headers declare
                    raise HTTPException(413, f"A form has at most {FORM_BYTES_MAX} bytes.")
        fields: list[tuple[str, str | UploadFile]] = [
            *parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        ]
    except trio.TooSlowError:
        raise HTTPException(408, "The form did not arrive in time.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The browser left.") from None
    except ValueError:
        raise HTTPException(400, f"The form has more than {FIELDS_MAX} fields.") from None
    if any(len(str(value)) > FIELD_CHARACTERS_MAX for _, value in fields):
        raise HTTPException(400, f"A field has more than {FIELD_CHARACTERS_MAX} characters.")
    return FormData(fields)


async def form_of(request: Request) -> FormData:
    """The form of a page of this session. Raises HTTPException (403) if its token is not the session's."""
    form = await fields_of(request)
    session: Session = request.state.session
    if not secrets.compare_digest(str(form.get("token", "")).encode(), session.form_token.encode()):
        raise HTTPException(403, "The form is too old, or not from this console. Load the page again.")
    return form
