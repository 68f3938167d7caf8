"""The console's clients: one for the whole console, or one for each user that has logged in."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from fencepost.client import AuthenticationError, Client, KafkaError
from fencepost.client.admin import Admin
from fencepost.client.admin.client import parts_of
from fencepost.client.admin.parts import AdminParts
from fencepost.client.client import dialing_client
from fencepost.client.network.wire import Dial, open_socket
from fencepost.console.limits import Guesses, network_of

logger = logging.getLogger(__name__)

SESSIONS_MAX: Final = 1000
IDLE_SECONDS: Final = 1800.0
"""A session without a request and without an open page for this time ends."""
IDLE_CHECK_SECONDS: Final = 60.0
LOGINS_AT_ONCE: Final = 4
LOGIN_FAILED_SECONDS: Final = 1.0
"""A wrong password is answered after this time at the earliest, so that guessing is slow."""


class TooManyGuesses(Exception):
    """Too many wrong passwords came from an address; `wait` is in seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.wait = wait


class Connection:
    """An open client with an admin client that pages share; streams open admin clients of their own."""

    def __init__(self, kafka: Client, admin: Admin) -> None:
        self.kafka = kafka
        self.admin = admin
        self.closing = trio.Event()
        self.streams: set[trio.CancelScope] = set()
        """Those of the open streams that use the client."""
        self.cache: dict[str, tuple[float, Any]] = {}
        """What pages keep for some seconds: (time of trio's clock, value)."""

    def close(self) -> None:
        """End its streams, then the client."""
        for scope in self.streams:
            scope.cancel()
        self.closing.set()

    @property
    def parts(self) -> AdminParts:
        return parts_of(self.admin)


class Session:
    """A browser: its token against forged forms, and the connection with its user's rights."""

    def __init__(self, connection: Connection, user: str | None) -> None:
        self.connection = connection
        self.user = user
        self.id = secrets.token_urlsafe(32)
        self.form_token = secrets.token_urlsafe(32)
        self.used_at = trio.current_time()
        self.notice: str | None = None
        """What the next page says first: the outcome of a form."""

    def take_notice(self) -> str | None:
        """The notice; it is shown once."""
        notice, self.notice = self.notice, None
        return notice


class Sessions:
    """All sessions. With `mechanisms`, each user logs in by one of them, and has a client of its own; without, all
    share one client.

    `config` is the client's configuration under Kafka's names.
    """

    def __init__(
        self, config: Mapping[str, Any], mechanisms: Sequence[str], tasks: trio.Nursery, dial: Dial = open_socket
    ) -> None:
        self.login = bool(mechanisms)
        self._config = config
        self._mechanisms = mechanisms
        self._tasks = tasks
        self._dial = dial
        self._shared: Connection | None = None
        self._sessions: dict[str, Session] = {}
        self._logins = trio.CapacityLimiter(LOGINS_AT_ONCE)
        self._guesses = Guesses()
        self._opening = trio.Lock()

    def find(self, session_id: str | None) -> Session | None:
        """The session with this id, if it has not ended; this counts as use."""
        self._end_idle()
        session = self._sessions.get(session_id or "")
        if session is not None and session.connection.closing.is_set():
            self.end(session)
            return None
        if session is not None:
            session.used_at = trio.current_time()
        return session

    async def begin(self) -> Session:
        """A session without a login. Raises KafkaError."""
        async with self._opening:
            if self._shared is None or self._shared.closing.is_set():
                self._shared = await self._tasks.start(self._hold, self._config)
        return self._keep(Session(self._shared, None))

    async def log_in(self, user: str, password: str, address: str) -> Session:
        """A session with the rights of this user. Raises TooManyGuesses, AuthenticationError and other KafkaErrors."""
        network, now = network_of(address), trio.current_time()
        wait = self._guesses.wait(network, now)
        if wait:
            logger.warning("login refused: too many wrong passwords came from its address address=%s", network)
            raise TooManyGuesses(wait)
        ends = now + LOGIN_FAILED_SECONDS
        refused: AuthenticationError | None = None
        async with self._logins:
            for mechanism in self._mechanisms:  # a user may have a password for one of them only
                user_config = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
                try:
                    session = await self._connected({**self._config, **user_config}, user)
                except AuthenticationError as error:
                    refused = error
                except KafkaError:
                    self._guesses.right(network)  # nothing is known of the password
                    raise
                else:
                    self._guesses.right(network)
                    logger.info("logged in user=%s", user)
                    return self._keep(session)
        logger.warning("login refused user=%s cause=%s", user, refused)
        await trio.sleep_until(ends)
        assert refused is not None
        raise refused

    async def _connected(self, config: Mapping[str, Any], user: str) -> Session:
        connection: Connection = await self._tasks.start(self._hold, config)
        try:
            await connection.admin.describe_cluster()
        except BaseException:
            connection.close()
            raise
        return Session(connection, user)

    def end(self, session: Session) -> None:
        """Forget the session; close its client if it is the user's own."""
        self._sessions.pop(session.id, None)
        if session.connection is not self._shared:
            session.connection.close()

    def _keep(self, session: Session) -> Session:
        self._end_idle()
        while len(self._sessions) >= SESSIONS_MAX:
            self.end(min(self._sessions.values(), key=lambda session: session.used_at))
        self._sessions[session.id] = session
        return session

    async def end_idle(self) -> None:
        """End idle sessions until cancelled, also while no request comes."""
        while True:
            await trio.sleep(IDLE_CHECK_SECONDS)
            self._end_idle()

    def _end_idle(self) -> None:
        oldest = trio.current_time() - IDLE_SECONDS
        for session in [one for one in self._sessions.values() if one.used_at < oldest]:
            if not session.connection.streams:  # an open page is use
                self.end(session)

    async def _hold(self, config: Mapping[str, Any], task_status: "trio.TaskStatus[Connection]") -> None:
        """Keep a client open until its connection closes. An unforeseen failure ends this client only."""
        connection: Connection | None = None
        try:
            async with dialing_client(config, self._dial) as kafka, kafka.admin() as admin:
                connection = Connection(kafka, admin)
                task_status.started(connection)
                await connection.closing.wait()
        except Exception:
            if connection is None:
                raise
            logger.exception("a client of the console failed; its sessions begin again")
        finally:
            if connection is not None:
                connection.close()
