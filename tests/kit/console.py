"""`fencepost console` as a process, and a visitor that uses it as a browser would: cookies, forms, event streams."""

import http.client
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

WAIT_S = 60.0
_READY = re.compile(r"^fencepost console ready on (\S+)$")
_TOKEN = re.compile(r'name="token" value="([^"]+)"')
_SHOWN = re.compile(r'name="shown" value="([^"]*)"')


class Shown(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def words(self) -> str:
        """The text of a page without its tags, with single spaces."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


class ConsoleProcess:
    """A console of the broker at `address`, on a port of its own choice."""

    def __init__(self, address: str, log: Path, *arguments: str) -> None:
        self._log = log
        words = ["fencepost", "console", "--bootstrap", address, "--listen", "127.0.0.1:0", *arguments]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "dev", "-m", *words], stdout=subprocess.PIPE, stderr=errors, env=inherited
            )
        self.url = self._ready()

    def _ready(self) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(WAIT_S), f"the console is silent: {self.said()}"
        found = _READY.match(self._process.stdout.readline().decode())
        assert found is not None, self.said()
        return found[1]

    def said(self) -> str:
        """Its log."""
        return self._log.read_text()

    def stop(self) -> int:
        """Stop it by SIGTERM; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(WAIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.stop()


class Visitor:
    """A browser without a screen: it keeps cookies, and sends the forms of the pages that it has seen."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.cookies: dict[str, str] = {}
        self.token = ""
        self.shown = ""
        """What the last page with a button for a transaction has shown."""

    def get(self, path: str, **headers: str) -> Shown:
        """One page; redirects are followed."""
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: Mapping[str, str | Sequence[str]], **headers: str) -> Shown:
        """Send a form, with the token of the last page that had one unless `fields` has another."""
        body = urlencode({"token": self.token, "shown": self.shown, **fields}, doseq=True)
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{self.host}:{self.port}"}
        return self._ask("POST", path, body, {**sent, **headers})

    def json(self, path: str) -> Any:
        shown = self.get(path)
        assert shown.status == 200, shown
        return json.loads(shown.text)

    def events(self, path: str, seconds: float = WAIT_S) -> Iterator[tuple[str, Any]]:
        """The events of a stream, until it ends."""
        connection = self._connection(seconds)
        try:
            connection.request("GET", path, headers=self._headers({}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            name = ""
            while line := response.readline().decode():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ").strip()
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))
        finally:
            connection.close()

    def _connection(self, seconds: float = WAIT_S) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=seconds)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {**({"cookie": cookies} if cookies else {}), **{n.replace("_", "-"): v for n, v in more.items()}}

    def _ask(self, method: str, path: str, body: str | None, more: Mapping[str, str], hops: int = 5) -> Shown:
        connection = self._connection()
        try:
            connection.request(method, path, body, self._headers(more))
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            text = response.read().decode()
        finally:
            connection.close()
        for name, value in response.getheaders():
            if name.lower() == "set-cookie":
                cookie = value.split(";")[0].partition("=")
                self.cookies[cookie[0]] = cookie[2]
        if response.status == 303 and hops:
            return self._ask("GET", headers["location"], None, {}, hops - 1)
        found = _TOKEN.search(text)
        self.token = found[1] if found else self.token
        shown = _SHOWN.search(text)
        self.shown = unescape(shown[1]) if shown else self.shown
        return Shown(response.status, headers, text)


def wait_for(look: Any, seconds: float = WAIT_S) -> Any:
    """The first true value of `look()`."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.05)
    return found
