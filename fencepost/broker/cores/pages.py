"""The pages of all cores as one: the core that is asked asks the others."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import trio

from fencepost.broker.metrics.pages import JSON, Readiness
from fencepost.broker.metrics.server import Page
from fencepost.broker.peers.links import open_unix_stream

SECONDS = 5.0
"""How long a core waits for the pages of another one."""
PAGE_BYTES_MAX = 1 << 30
_READ_BYTES = 1 << 16
UP = "fencepost_core_up"

Pages = Mapping[bytes, Callable[[], Awaitable[Page]]]


class AllPages:
    """The pages of this core and those of the others, which are behind UNIX sockets by number."""

    def __init__(self, number: int, own: Pages, others: Callable[[], Mapping[int, str]]) -> None:
        self._number = number
        self._own = own
        self._others = others

    @property
    def pages(self) -> Pages:
        return {b"/metrics": self._metrics, b"/ready": self._ready, b"/health": self._own[b"/health"]}

    async def _metrics(self) -> Page:
        """The metrics of all cores, each with a label that names it."""
        found = await self._ask_all(b"/metrics")
        bodies = {number: None if page is None else page[2] for number, page in found.items()}
        own = found[self._number]
        assert own is not None
        return HTTPStatus.OK, own[1], await trio.to_thread.run_sync(merged, bodies)

    async def _ready(self) -> Page:
        """Ready are all of them, or none is."""
        reasons: dict[str, str] = {}
        facts: dict[str, Any] = {}
        found = await self._ask_all(b"/ready")
        for number, page in found.items():
            if page is None:
                reasons[f"core_{number}"] = f"core {number} does not answer: what it leads waits for its start"
                continue
            one = json.loads(page[2])
            reasons |= {f"core_{number}_{word}": text for word, text in one.pop("reasons").items()}
            facts[f"core_{number}"] = one
        return Readiness(reasons, {"cores": len(found), **facts}).page()

    async def _ask_all(self, path: bytes) -> dict[int, Page | None]:
        """The page of each core by number; None for a core that does not answer."""
        others = self._others()
        found: dict[int, Page | None] = {self._number: None, **dict.fromkeys(others)}

        async def ask(number: int, page: Callable[[], Awaitable[Page]]) -> None:
            with trio.move_on_after(SECONDS):
                try:
                    found[number] = await page()
                except (OSError, trio.BrokenResourceError, ValueError):
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, self._number, self._own[path])
            for number, address in others.items():
                nursery.start_soon(ask, number, partial(_page_of, address, path))
        return dict(sorted(found.items()))


async def _page_of(address: str | bytes, path: bytes) -> Page:
    """A page of another core. Raises OSError, trio.BrokenResourceError, and ValueError for what is no answer."""
    data = bytearray()
    async with await open_unix_stream(address) as stream:
        await stream.send_all(b"GET %s HTTP/1.1\r\n\r\n" % path)
        while len(data) < PAGE_BYTES_MAX and (more := await stream.receive_some(_READ_BYTES)):
            data += more
    head, separator, body = bytes(data).partition(b"\r\n\r\n")
    first, *fields = head.decode("ascii").split("\r\n")
    kind = next((value for name, _, value in (one.partition(": ") for one in fields) if name == "Content-Type"), JSON)
    if not separator:
        raise ValueError("the answer ended within its head")
    return HTTPStatus(int(first.split(" ")[1])), kind, body


def merged(pages: Mapping[int, bytes | None]) -> bytes:
    """The metrics of several cores in one text, the samples of a family together, each with a label `core`."""
    families: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    for number, page in pages.items():
        label = b'core="%d"' % number
        family: tuple[list[bytes], list[bytes]] = ([], [])
        for line in (page or b"").splitlines():
            if line.startswith(b"# "):
                _, kind, name, *_ = line.split(b" ", 3)
                known = families.get(name)
                family = families.setdefault(name, ([], []))
                if known is None or (len(known[0]) == 1 and kind != known[0][0].split(b" ", 2)[1]):
                    family[0].append(line)
            elif line:
                family[1].append(_labelled(line, label))
    up = [f'{UP}{{core="{number}"}} {int(page is not None)}'.encode() for number, page in pages.items()]
    parts = [b"# HELP %s Whether the core answers" % UP.encode(), b"# TYPE %s gauge" % UP.encode(), *up]
    for comments, samples in families.values():
        parts += comments
        parts += samples
    return b"\n".join(parts) + b"\n"


def _labelled(line: bytes, label: bytes) -> bytes:
    name, brace, rest = line.partition(b"{")
    if brace and b" " not in name:
        return name + b"{" + label + (b"" if rest.startswith(b"}") else b",") + rest
    name, _, value = line.partition(b" ")
    return name + b"{" + label + b"} " + value
