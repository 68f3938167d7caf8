"""One connection to one broker: it sends requests in order without waiting; a correlation id names each response."""

import math
from collections import deque
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from fencepost.client.errors import (
    AuthenticationError,
    ConnectionLostError,
    FatalError,
    KafkaError,
    RetriableError,
    code_of,
)
from fencepost.client.network.frames import FRAMES
from fencepost.client.network.pending import Pending
from fencepost.client.network.wire import Wire
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import RequestValue, ResponseValue
from fencepost.protocol.session import Refused, Session, SessionError, Steps, learn_versions, next_step
from fencepost.version import __version__

R = TypeVar("R", bound=ResponseValue)
_FAIRNESS = 16
SOFTWARE_NAME = "fencepost"
MOST_PENDING = 1000
"""The maximum number of unanswered requests on one connection. A correct program stays far below it."""
MOST_UNSENT_BYTES = 128 << 20


class Connection:
    """A pipelined connection. `run` must be started in a task group before the first request."""

    def __init__(
        self, wire: Wire, address: tuple[str, int], node: int | None, client_id: str, max_frame_bytes: int
    ) -> None:
        self._wire = wire
        self._socket = wire.socket
        self.address = address
        self.node = node
        self.session: Session[Pending[Any]] = Session(client_id, max_frame_bytes, FRAMES.take)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._held: deque[tuple[Pending[Any], list[memoryview]]] = deque()
        self._holds = 0
        self._to_send = anyio.Event()
        self.closed_because: str | None = None
        self.failure: KafkaError | None = None
        """The error that ended it, where another attempt would fail in the same way."""
        self.ended = anyio.Event()
        self.throttled_until = -math.inf
        """Until when, by the event loop's clock, the broker throttles this client."""
        self.last_used = anyio.current_time()
        self.closed_by_broker = False
        """Whether the broker closed it."""
        self.has_answered = False
        """Whether a request got a response after the set-up."""
        self._reads = 0

    @property
    def closed(self) -> bool:
        return self.closed_because is not None

    @property
    def idle(self) -> bool:
        now = anyio.current_time()
        return all(request.overdue(now) for request in self.session.in_flight.values())

    def close(self, reason: str, failure: KafkaError | None = None) -> None:
        """Close the connection; unanswered requests fail with `reason`. May be called again."""
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self.failure = failure
        self._wire.close()
        self._unsent.clear()
        self._held.clear()
        self._to_send.set()
        self.ended.set()
        lost = list(self.session.in_flight.values())
        self.session.in_flight.clear()
        for request in lost:
            request.lose(f"connection to {self.address[0]}:{self.address[1]} ended: {reason}", failure)

    def version_for(self, key: ApiKey, *, at_most: int = 1 << 15, at_least: int = 0) -> int:
        """As the session's `version_of`. Raises FatalError when there is no version that both sides support."""
        try:
            return self.session.version_of(API_BY_KEY[key], at_least, at_most)
        except Refused as refused:
            raise self.error_of(refused) from None

    def post(self, version: int, request: RequestValue[R], *, urgent: bool = False) -> Pending[R]:
        """Queue one request behind those already posted, without waiting.

        Raises ConnectionLostError if it is closed, or dead: an older request has had no response for too long.

        Raises RetriableError if too many requests are unanswered already. `urgent` overtakes those that are held back.
        """
        api = API_BY_KEY[request.api_key]
        if self.closed_because is not None:
            raise self.failure or ConnectionLostError(self.closed_because, sent=False, api=api.name, node=self.node)
        now = anyio.current_time()
        oldest = next(iter(self.session.in_flight.values()), None)
        if oldest is not None and oldest.overdue(now):
            # The task that sent it was cancelled, so no task was left to time out on this broker.
            self.close("no response in time")
            raise ConnectionLostError("no response in time", sent=False, api=api.name, node=self.node)
        if len(self.session.in_flight) >= MOST_PENDING or self._unsent_bytes > MOST_UNSENT_BYTES:
            raise RetriableError("too many requests or bytes wait for this broker", api=api.name, node=self.node)
        pending: Pending[R] = Pending(api, version, self)
        parts = [memoryview(part) for part in self.session.send(pending, request)]
        self.last_used = now
        self._unsent_bytes += len(parts[0]) + len(parts[1])
        if self._holds and not urgent:
            pending.sent = False
            self._held.append((pending, parts))
            return pending
        self._unsent.extend(parts)
        self._push()
        return pending

    def _push(self) -> None:
        """Send as much as possible at once, and leave the rest to `_write`."""
        try:
            done = self._send_some()
        except (OSError, AuthenticationError) as error:
            self._broke(error)
            return
        if not done:
            self._to_send.set()

    async def ask(
        self, request: RequestValue[R], timeout_s: float, *, version: int | None = None, urgent: bool = False
    ) -> R:
        """Post one request and wait for its response. Raises as `version_for` and `Pending.wait` do."""
        if version is None:
            version = self.version_for(request.api_key)
        return await self.post(version, request, urgent=urgent).wait(timeout_s)

    # -- holding requests back

    def rest(self, seconds: float) -> None:
        """Send nothing for `seconds`: the quota is used up, and the broker would not read either (KIP-219)."""
        until = anyio.current_time() + seconds
        if seconds <= 0 or until <= self.throttled_until or self.closed:
            return
        if self.throttled_until == -math.inf:
            self.hold()
        self.throttled_until = until
        self._to_send.set()

    def hold(self) -> None:
        """Hold back requests that are posted from now on, until `release`."""
        self._holds += 1

    def release(self) -> None:
        """Send the requests held back, once every `hold` is released."""
        self._holds -= 1
        if self._holds or self.closed:
            return
        while self._held:
            pending, parts = self._held.popleft()
            pending.sent = True
            self._unsent.extend(parts)
        self._push()

    def _send_some(self) -> bool:
        """Write what the socket accepts now; True when nothing is left. Raises OSError, AuthenticationError."""
        unsent = self._unsent
        while unsent:
            parts = [unsent[i] for i in range(min(len(unsent), 32))]
            try:
                sent = self._wire.send(parts)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent_bytes -= sent
            while sent:
                first = unsent[0]
                if sent >= len(first):
                    sent -= len(first)
                    unsent.popleft()
                else:
                    unsent[0] = first[sent:]
                    sent = 0
            while unsent and not len(unsent[0]):
                unsent.popleft()
        return self._wire.flush()

    async def run(self) -> None:
        """Read responses, and write requests that could not be sent at once, until the connection is closed."""
        try:
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(self._write)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self.close("the client was closed")

    async def _write(self) -> None:
        while True:
            with anyio.CancelScope(deadline=math.inf if self.throttled_until == -math.inf else self.throttled_until):
                await self._to_send.wait()
            if self.closed:
                return
            if self.throttled_until != -math.inf and self.throttled_until <= anyio.current_time():
                self.throttled_until = -math.inf
                self.release()
            try:
                if self._send_some():
                    self._to_send = anyio.Event()
                else:
                    await anyio.wait_writable(self._socket)
            except anyio.ClosedResourceError:
                return
            except (OSError, AuthenticationError) as error:
                self._broke(error)

    def _broke(self, error: Exception) -> None:
        self.closed_by_broker = isinstance(error, ConnectionResetError | BrokenPipeError)
        self.close(str(error), error if isinstance(error, AuthenticationError) else None)

    async def _read(self) -> None:
        session = self.session
        while count := await self._receive(session.room()):
            session.received(count)
            try:
                # No variable may hold a response while the next one is awaited: its memory could not be used again.
                while (response := session.next_response()) is not None:
                    self.has_answered = session.ready
                    self.last_used = anyio.current_time()
                    response.sent.arrive(response)
            except Refused as refused:
                failure = self.error_of(refused)
                self.close(failure.args[0], failure)
            except SessionError as error:
                self.close(str(error))

    async def _receive(self, into: memoryview) -> int:
        """Some bytes from the socket; 0 when the connection is closed by now."""
        while not self.closed:
            try:
                count = self._wire.recv_into(into)
            except (BlockingIOError, InterruptedError):
                try:
                    await anyio.wait_readable(self._socket)
                except anyio.ClosedResourceError:
                    return 0
                continue
            except (OSError, AuthenticationError) as error:
                self._broke(error)
                return 0
            if not count:
                self.closed_by_broker = True
                self.close("the broker closed the connection")
                return 0
            self._reads += 1
            if self._reads % _FAIRNESS == 0:
                await anyio.lowlevel.checkpoint()
            return count
        return 0

    # -- conversations

    async def negotiate(self, timeout_s: float) -> None:
        """Fetch the broker's versions and features. Raises KafkaError."""
        await self.converse(learn_versions(self.session, SOFTWARE_NAME, __version__), timeout_s)

    async def converse(self, steps: Steps, timeout_s: float, *, urgent: bool = False, in_thread: bool = False) -> None:
        """Send each request of a conversation, and wait for its response. `in_thread`: steps may take long.

        Raises as `Pending.wait` does, and `error_of` the session's Refused.
        """
        try:
            step = next_step(steps)
            while step is not None:
                response = await self.ask(step[0], timeout_s, version=step[1], urgent=urgent)
                if in_thread:
                    step = await anyio.to_thread.run_sync(next_step, steps, response)
                else:
                    step = next_step(steps, response)
        except Refused as refused:
            raise self.error_of(refused) from None

    def error_of(self, refused: Refused) -> KafkaError:
        """The client's error for what the session raised."""
        reason = str(refused)
        if refused.protocols:
            reason += f": set security_protocol to {' or '.join(map(repr, refused.protocols))}"
        code = None if refused.code is None else code_of(refused.code)
        kind: type[KafkaError] = AuthenticationError
        if code is ErrorCode.UNSUPPORTED_VERSION:
            kind = FatalError
        elif refused.api == "ApiVersions":
            kind = KafkaError
        elif code is not None and code.retriable:
            kind = RetriableError
        return kind(reason, code=code, api=refused.api, node=self.node, broker_message=refused.broker_message)
