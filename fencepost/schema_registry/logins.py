"""HTTP's Basic logins: each user has a client of its own at the broker, which checks the password and the rights."""

import base64
import binascii
import hashlib
import hmac
import os
from typing import Final

import trio

from fencepost.console.connections import Connection, Sessions

LOGIN_SECONDS: Final = 300.0
"""A password counts for this long without another login at the broker: then a deleted user loses its rights."""
KNOWN_MAX: Final = 1000


class LoginWanted(Exception):
    """The request has no user and password."""


class Logins:
    """The connection for each request. Passwords are not kept, but a digest that only this process can compute."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._key = os.urandom(32)
        self._known: dict[bytes, tuple[str, float]] = {}
        """The session of a user and password, and until when the login counts."""
        self._shared: str | None = None

    async def connection(self, authorization: str | None, address: str) -> Connection:
        """The client with the rights of the request's user.

        Raises LoginWanted, TooManyGuesses, AuthenticationError and other KafkaErrors.
        """
        if not self._sessions.login:
            session = self._sessions.find(self._shared) or await self._sessions.begin()
            self._shared = session.id
            return session.connection
        user, password = _basic(authorization)
        digest = hmac.new(self._key, f"{user}\0{password}".encode(), hashlib.sha256).digest()
        session_id, until = self._known.get(digest, ("", 0.0))
        found = self._sessions.find(session_id)
        if found is None or until < trio.current_time():
            found = await self._sessions.log_in(user, password, address)
            self._known.pop(digest, None)
            self._known[digest] = found.id, trio.current_time() + LOGIN_SECONDS
            while len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        return found.connection


def _basic(authorization: str | None) -> tuple[str, str]:
    """User and password of the header. Raises LoginWanted."""
    kind, _, encoded = (authorization or "").partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode() if kind.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise LoginWanted
    return user, password
