"""An HTTP proxy in front of an object store that spoils chosen requests: errors, delays, lost and damaged answers."""

import http.client
import http.server
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True)
class Fault:
    """What happens to one request. The order: delay, status, request, lost, answer."""

    status: int = 0
    """Answer with this status, and pass nothing on."""
    code: str = "InternalError"
    """S3's code of that error."""
    delay_s: float = 0.0
    """Before the request is passed on."""
    reset: bool = False
    """Reset the connection, and pass nothing on."""
    lost_answer: bool = False
    """Pass the request on, and close the connection instead of answering."""
    slow_answer_s: float = 0.0
    """Pass the request on, and wait before the answer."""
    body: Callable[[bytes], bytes] = bytes
    """Changes the answer's body, and its Content-Length with it."""
    torn: bool = False
    """Send half of the body, then close the connection."""


class FaultyProxy:
    """A context manager. Faults are used up in order by requests with the method; others pass unchanged."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._faults: deque[tuple[str, Fault]] = deque()
        self._lock = threading.Lock()
        self.requests: list[str] = []
        """The methods of all requests."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spoil(self, method: str, fault: Fault, times: int = 1) -> None:
        """Let the next `times` requests with this method fail in this way."""
        with self._lock:
            self._faults.extend([(method, fault)] * times)

    def heal(self) -> None:
        """Forget the faults that were not used."""
        with self._lock:
            self._faults.clear()

    def take(self, method: str) -> Fault:
        """The fault of the next request."""
        with self._lock:
            self.requests.append(method)
            if self._faults and self._faults[0][0] == method:
                return self._faults.popleft()[1]
            return Fault()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client has given up
                    self.close_connection = True

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = proxy.take(self.command)
                time.sleep(fault.delay_s)
                if fault.reset:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                    self.close_connection = True
                elif fault.status:
                    self._answer(error_answer(fault), fault)
                else:
                    answer = proxy.forward(self.command, self.path, dict(self.headers), body)
                    time.sleep(fault.slow_answer_s)
                    if fault.lost_answer:
                        self.close_connection = True
                    else:
                        self._answer(answer._replace(body=fault.body(answer.body)), fault)

            def _answer(self, answer: Answer, fault: Fault) -> None:
                self.send_response_only(answer.status)
                for name, value in answer.headers:
                    if name.lower() not in HOP_HEADERS:
                        self.send_header(name, value)
                size = len(answer.body)
                if self.command == "HEAD":
                    size = int(dict(answer.headers).get("Content-Length", "0"))
                self.send_header("Content-Length", str(size))
                self.end_headers()
                self.wfile.write(answer.body[: size // 2] if fault.torn else answer.body)
                self.close_connection = self.close_connection or fault.torn

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """The server's answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()


def error_answer(fault: Fault) -> Answer:
    """An error as S3 sends it."""
    body = f"<Error><Code>{fault.code}</Code><Message>planted</Message></Error>".encode()
    return Answer(fault.status, [("Content-Type", "application/xml")], body)
