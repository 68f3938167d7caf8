"""What all pages of one console share."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import jinja2
import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from fencepost import __version__
from fencepost.cli.plain_text import age, cell, counted, moment, now_ms, places, size
from fencepost.client import KafkaError
from fencepost.console.connections import Connection, Session, Sessions
from fencepost.console.errors import described
from fencepost.console.events import Emit, EventStream
from fencepost.console.metadata_history import History

logger = logging.getLogger(__name__)

STREAMS_MAX: Final = 64
"""Open streams of one console. A page beyond them is shown, and does not refresh itself."""
REFRESH_SECONDS: Final = 2.0
ACTIONS_KEPT: Final = 200


class Action(NamedTuple):
    """A change that a user made with the console."""

    time_ms: int
    user: str
    address: str
    text: str


class Console:
    """One console: its sessions, its templates and its limits.

    `bootstrap` names the cluster in commands to copy. `metadata` is the data directory of a broker of this machine, if
    the console may read the metadata log from it.
    """

    def __init__(self, sessions: Sessions, bootstrap: str, metadata: Path | None, hosts: Iterable[str]) -> None:
        self.sessions = sessions
        self.bootstrap = bootstrap
        self.metadata = metadata
        self.hosts = frozenset(host.lower() for host in hosts)
        """Names under which browsers may reach the console, besides addresses and localhost."""
        self.stopping = trio.Event()
        self.streams = 0
        self.history: History | None = None
        """Of the metadata; the first look at its page opens it."""
        self.actions: deque[Action] = deque(maxlen=ACTIONS_KEPT)
        self.templates = jinja2.Environment(
            loader=jinja2.PackageLoader("fencepost.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            "age": age,
            "cell": cell,
            "counted": counted,
            "moment": moment,
            "places": places,
            "size": size,
        }
        self.templates.globals |= {"version": __version__, "now_ms": now_ms}


def console_of(request: Request) -> Console:
    found: Console = request.app.state.console
    return found


def session_of(request: Request) -> Session:
    """The browser's session; the application makes sure that there is one."""
    found: Session = request.state.session
    return found


def connection_of(request: Request) -> Connection:
    return session_of(request).connection


Body = Callable[[Request], Awaitable[tuple[str, dict[str, Any]]]]
"""Makes a page: the name of its template and the template's values. Raises KafkaError."""


def page(body: Body) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that shows the page."""

    async def show(request: Request) -> Response:
        template, values = await body(request)
        return render(request, template, values)

    return show


def live(body: Body) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that sends the page's content again whenever it has changed."""

    async def stream(request: Request) -> Response:
        async def work(emit: Emit) -> None:
            before = ""
            while True:
                await trio.sleep(REFRESH_SECONDS)
                try:
                    template, values = await body(request)
                    now = text_of(request, template, {**values, "fragment": True})
                except KafkaError as error:
                    await emit("trouble", described(error).title)
                    continue
                except HTTPException:  # the list has become shorter than the page that is shown
                    await emit("trouble", "This page does not exist any more. Load it again.")
                    continue
                if now != before:
                    await emit("html", now)
                    before = now
                else:
                    await emit("same", None)

        return open_stream(request, work)

    return stream


def open_stream(request: Request, work: Callable[[Emit], Awaitable[None]]) -> Response:
    """A response that stays open while `work` emits events."""
    console = console_of(request)
    if console.streams >= STREAMS_MAX:
        return Response(f"{STREAMS_MAX} streams are open; close some pages of the console\n", status_code=503)

    async def counted_work(emit: Emit) -> None:
        console.streams += 1
        try:
            await work(emit)
        finally:
            console.streams -= 1

    return EventStream(counted_work, console.stopping, connection_of(request).streams)


def render(request: Request, template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    return HTMLResponse(text_of(request, template, values), status_code=status, headers={"cache-control": "no-store"})


async def error_page(request: Request, error: Exception) -> Response:
    """The page for a KafkaError that an endpoint raised."""
    assert isinstance(error, KafkaError)
    trouble = described(error)
    return render(request, "error.html", {"title": trouble.title, "hint": trouble.hint}, trouble.status)


def text_of(request: Request, template: str, values: dict[str, Any]) -> str:
    """The page's HTML; with the value `fragment`, only the part that is refreshed."""
    console, session = console_of(request), getattr(request.state, "session", None)
    fragment = bool(values.get("fragment"))
    shared = {
        "fragment": False,
        "path": request.url.path,
        "query": request.url.query,
        "bootstrap": console.bootstrap,
        "user": None if session is None else session.user,
        "form_token": None if session is None else session.form_token,
        "notice": None if fragment or session is None else session.take_notice(),
    }
    return console.templates.get_template(template).render({**shared, **values})


def record_action(request: Request, text: str) -> None:
    """Remember, and log, a change that the user made."""
    console, session = console_of(request), session_of(request)
    address = request.client.host if request.client is not None else "-"
    console.actions.appendleft(Action(now_ms(), session.user or "", address, text))
    logger.info("console action user=%s address=%s what=%s", session.user or "-", address, text)
