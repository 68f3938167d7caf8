"""A TCP proxy before PostgreSQL that breaks connections at commits, and that can cut one broker from the database."""

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from enum import Enum
from types import TracebackType
from typing import Self

COMMIT = b"fp_append("
SYNC = b"S"
READY = b"Z\x00\x00\x00\x05I"
"""ReadyForQuery: the transaction has ended."""
LATE_SECONDS = 0.5


class CommitFault(Enum):
    """What happens to the next commit; the connection breaks in each case."""

    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    REQUEST_LATE = "request late"
    """The server gets it when the broker has long connected again."""


class PostgresProxy:
    """A context manager. The server listens on a Unix socket."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        """The path of its socket; new connections go there."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._faults: deque[CommitFault] = deque()
        self._passing = threading.Event()
        self._passing.set()
        self.played = 0
        """Faults that happened."""

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def spoil(self, fault: CommitFault) -> None:
        """Let this happen to the next commit."""
        self._faults.append(fault)

    def forget(self) -> None:
        """Let nothing happen to the next commit."""
        self._faults.clear()

    def cut(self) -> None:
        """Carry nothing any more; connections stay open, as when a network breaks."""
        self._passing.clear()

    def heal(self) -> None:
        """Carry everything, also what was sent meanwhile."""
        self._passing.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._passing.wait()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self.upstream)
        except OSError:
            client.close()
            return
        link = _Link(self, client, server)
        threading.Thread(target=link.carry_answers, daemon=True).start()
        link.carry_requests()

    def next_fault(self) -> CommitFault | None:
        """What happens to the commit that has just come."""
        try:
            fault = self._faults.popleft()
        except IndexError:
            return None
        self.played += 1
        return fault

    def pass_on(self) -> None:
        """Wait while the broker is cut off."""
        self._passing.wait()


class _Link:
    """One connection of a broker."""

    def __init__(self, proxy: PostgresProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._commits: set[bytes] = set()
        """The prepared statements that commit."""
        self._deaf = False
        """The broker gets no answer any more."""

    def carry_requests(self) -> None:
        """Until one side closes the connection, or a fault breaks it."""
        messages = _messages(self._client)
        with contextlib.suppress(OSError):
            for message in messages:
                self._proxy.pass_on()
                fault = self._proxy.next_fault() if self._is_commit(message) else None
                if fault is CommitFault.REQUEST_LOST:
                    break
                if fault is CommitFault.ANSWER_LOST:
                    self._deaf = True
                elif fault is CommitFault.REQUEST_LATE:
                    self._send_late(message, messages)
                    break
                self._server.sendall(message)
        self._close()

    def carry_answers(self) -> None:
        """Until one side closes the connection, or the lost answer was complete."""
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 16):
                self._proxy.pass_on()
                if not self._deaf:
                    self._client.sendall(data)
                elif data.endswith(READY):
                    break
        self._close()

    def _is_commit(self, message: bytes) -> bool:
        name, _, rest = message[5:].partition(b"\0")
        if message[:1] == b"P" and COMMIT in rest:
            self._commits.add(name)
        return message[:1] == b"B" and rest.partition(b"\0")[0] in self._commits

    def _send_late(self, message: bytes, following: Iterator[bytes]) -> None:
        self._deaf = True
        parts = [message]
        while parts[-1][:1] != SYNC:
            parts.append(next(following))
        self._client.shutdown(socket.SHUT_RDWR)
        time.sleep(LATE_SECONDS)
        self._server.sendall(b"".join(parts))
        time.sleep(LATE_SECONDS)

    def _close(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):  # the other thread was faster
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _messages(source: socket.socket) -> Iterator[bytes]:
    """A client's messages; the first one has no type."""
    begun = False
    with source.makefile("rb") as stream:
        while True:
            kind = stream.read(1) if begun else b""
            size = stream.read(4)
            if len(size) < 4:
                return
            yield kind + size + stream.read(struct.unpack(">I", size)[0] - 4)
            begun = True
