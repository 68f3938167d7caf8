"""Reads the keys of a token issuer (JWKS) from https or a file, again and again in the background."""

import json
import logging
import ssl
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import trio

logger = logging.getLogger(__name__)

DOCUMENT_BYTES_MAX = 1 << 20
TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = 10.0
"""The least time between two reads: a client with an unknown key must not make the broker ask all the time."""


class TokenKeys:
    """The keys behind one URL, for the validators that use them."""

    def __init__(self, url: str, refresh_seconds: float) -> None:
        self._url = url
        self._refresh_seconds = refresh_seconds
        self._users: list[Callable[[Any], None]] = []
        self._wanted = trio.Event()

    def give_to(self, use: Callable[[Any], None]) -> None:
        """Pass each document to `use`, which raises ValueError if it cannot be used."""
        self._users.append(use)

    def want(self) -> None:
        """Read the keys soon: a token has a key that is not known."""
        self._wanted.set()

    async def run(self) -> None:
        """Read the keys until cancelled. Errors are logged; the keys of the last good read stay in use."""
        while True:
            self._wanted = trio.Event()
            try:
                document = await trio.to_thread.run_sync(read_key_set, self._url, abandon_on_cancel=True)
                for use in self._users:
                    use(document)
            except (OSError, ValueError, HTTPException) as error:
                logger.error("cannot read the keys of tokens url=%s cause=%s", self._url, error)
                self._wanted.set()
            await trio.sleep(min(RETRY_SECONDS, self._refresh_seconds))
            with trio.move_on_after(max(0.0, self._refresh_seconds - RETRY_SECONDS)):
                await self._wanted.wait()


def read_key_set(url: str) -> Any:
    """The JSON document at an https or file URL. Redirects are not followed.

    Raises OSError, ValueError and HTTPException.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return json.loads(Path(unquote(parts.path)).read_bytes())
    if parts.scheme != "https":
        raise ValueError("the URL is neither https nor file")
    connection = HTTPSConnection(
        parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context()
    )
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""))
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"the server answered {response.status}")
        body = response.read(DOCUMENT_BYTES_MAX + 1)
    finally:
        connection.close()
    if len(body) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    return json.loads(body)
