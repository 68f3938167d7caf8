"""The process around the console: how it starts, stops, and behaves when its broker is not there."""

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fencepost.console.http_server import CONNECTIONS_MAX, CONNECTIONS_OF_ONE_MAX, WRITE_SECONDS
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.certificates import Authority
from tests.kit.console import ConsoleProcess, Visitor, wait_for
from tests.kit.old_kafka import OldKafka
from tests.kit.wire import Wire, batch_of

STOP_SECONDS_MAX = 5.0


def test_it_stops_at_once_though_pages_are_open(tmp_path: Path) -> None:
    """An open stream must not hold the broker up: pages load again when it is back."""
    broker = BrokerProcess(tmp_path, arguments=["--console", "127.0.0.1:0"]).start()
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"a"))
    visitor = Visitor(broker.facts["console"])
    visitor.get("/")
    streams = [visitor.events(path) for path in ("/live-tail/t", "/live-log/t/0?from=0", "/live/")]
    for one in streams:
        next(one)
    ended = threading.Thread(target=lambda: [list(one) for one in streams])
    ended.start()
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - began < STOP_SECONDS_MAX
    ended.join(10)
    assert not ended.is_alive()
    assert "Traceback" not in broker.log()


def test_a_broker_that_comes_later_is_found(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker").start()
    address = broker.address
    broker.kill()
    with ConsoleProcess(address, tmp_path / "console.log", "--timeout", "1") as console:
        visitor = Visitor(console.url)
        shown = visitor.get("/topics")
        assert (shown.status, "This did not work" in shown.words) == (502, True)
        assert "Is a broker running" in shown.words
        broker.start()
        wait_for(lambda: visitor.get("/topics").status == 200)
        broker.stop()
        assert console.stop() == 0
        assert "Traceback" not in console.said()


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        words = [sys.executable, "-m", "fencepost", "console", "--listen", where]
        run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (run.returncode, f"cannot listen on {where}" in run.stderr) == (1, True), run.stderr
        assert "Traceback" not in run.stderr
        with pytest.raises(BrokerFailed, match=f"cannot listen on {where}: Address already in use"):
            BrokerProcess(tmp_path, arguments=["--console", where]).start()
    with pytest.raises(BrokerFailed, match="'here' is not HOST:PORT"):
        BrokerProcess(tmp_path, arguments=["--console", "here"]).start()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--login"], "--login needs a listener with SASL"),
        (["--key", "pyproject.toml"], "--key needs --certificate"),
        (["-X", "security.protocol=SSH"], "must be one of plaintext, ssl"),
    ],
)
def test_wrong_options(words: list[str], why: str) -> None:
    command = [sys.executable, "-m", "fencepost", "console", *words]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, why in run.stderr) == (2, True), run.stderr


def test_https(tmp_path: Path) -> None:
    """And a warning where everyone may do everything."""
    import ssl
    import urllib.request

    authority = Authority(tmp_path / "certificates")
    server = authority.sign("console", hosts=["localhost"])
    broker = BrokerProcess(tmp_path / "broker").start()
    arguments = ["--certificate", str(server.certificate), "--key", str(server.key), "--listen", "0.0.0.0:0"]
    with ConsoleProcess(broker.address, tmp_path / "console.log", *arguments) as console:
        port = console.url.rpartition(":")[2]
        context = ssl.create_default_context(cafile=str(authority.ca))
        with urllib.request.urlopen(f"https://localhost:{port}/", context=context) as answer:
            assert "Secure" in answer.headers["set-cookie"]
            assert b"Overview" in answer.read()
        assert "everyone who reaches the console may do what its user may" in console.said()
    broker.stop()


STRANGE = {
    "HTTP/2 by upgrade": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: zzzz\r\n\r\n",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x05\x02\0\0\0\0\x01" * 200,
    "a websocket": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + b"\xff" * 100,
    "no HTTP": b"\x16\x03\x01" + b"\0" * 200,
    "a length that is none": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "a number without end": b"GET /topics?page=" + b"9" * 3900 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with its console, which no request may end."""
    with BrokerProcess(tmp_path_factory.mktemp("embedded"), arguments=["--console", "127.0.0.1:0"]) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log()


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_connection_ends_alone(embedded: BrokerProcess, name: str) -> None:
    """Nobody has to log in to send these: the console must outlive them."""
    visitor = Visitor(embedded.facts["console"])
    with socket.create_connection((visitor.host, visitor.port), 10) as sock:
        sock.sendall(STRANGE[name])
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    assert visitor.get("/health").status == 200
    assert visitor.get("/").status == 200


def test_connections_are_bounded_and_kafka_clients_do_not_wait(embedded: BrokerProcess) -> None:
    """Forms that never arrive take neither all descriptors nor the broker's time, and lock no other address out."""
    visitor = Visitor(embedded.facts["console"])
    head = b"POST /group/reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    further = CONNECTIONS_MAX - CONNECTIONS_OF_ONE_MAX
    socks = [_from(visitor, "127.0.0.1") for _ in range(CONNECTIONS_OF_ONE_MAX + 20)]
    try:
        for sock in socks[:CONNECTIONS_OF_ONE_MAX]:
            sock.sendall(head)
        with Wire(embedded.connect()) as wire:
            wire.create_topic("served")
        assert [sock.recv(1) for sock in socks[CONNECTIONS_OF_ONE_MAX:]] == [b""] * 20
        with _from(visitor, "127.0.0.2") as other:
            other.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert other.recv(12) == b"HTTP/1.1 200"
            while other.recv(1 << 16):
                pass
        socks += [_from(visitor, f"127.0.0.{3 + n % 2}") for n in range(further)]
        with _from(visitor, "127.0.0.5") as beyond:
            assert beyond.recv(1) == b"", "the bound of all connections"
    finally:
        for sock in socks:
            sock.close()
    wait_for(lambda: _answers(visitor))


def _from(visitor: Visitor, address: str) -> socket.socket:
    return socket.create_connection((visitor.host, visitor.port), 10, source_address=(address, 0))


@pytest.mark.parametrize(
    ("lengths", "status"),
    [(b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400), (b"Transfer-Encoding: chunked\r\n", 411)],
)
@pytest.mark.parametrize("path", [b"/login", b"/group/reset"])
def test_a_form_is_bounded_by_its_bytes_and_not_by_what_it_declares(
    embedded: BrokerProcess, path: bytes, lengths: bytes, status: int
) -> None:
    """Both headers at once took a broker to 963 MiB, without a login. RFC 9112, 6.3: such a request is refused."""
    visitor = Visitor(embedded.facts["console"])
    chunk = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
    with socket.create_connection((visitor.host, visitor.port), 10) as sock:
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, lengths))
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                sock.sendall(chunk)
            pytest.fail("the console read 64 MiB of a form")
    with socket.create_connection((visitor.host, visitor.port), 10) as sock:
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, lengths))
        assert sock.recv(12) == b"HTTP/1.1 %d" % status
    assert visitor.get("/health").status == 200


def _answers(visitor: Visitor) -> bool:
    try:
        return visitor.get("/health").status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_a_client_that_does_not_read_delays_no_stop(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, arguments=["--console", "127.0.0.1:0"]).start()
    visitor = Visitor(broker.facts["console"])
    with socket.create_connection((visitor.host, visitor.port), 10) as sock:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(4000):
                sock.send(b"GET /static/partition.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.5)
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < WRITE_SECONDS + STOP_SECONDS_MAX


async def test_an_old_kafka_is_shown_as_far_as_it_goes(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Kafka 2.1 lists no transactions and describes no producers: these pages say so, the others work."""
    broker = await trio.to_thread.run_sync(BrokerProcess(tmp_path / "broker").start)

    def prepare() -> None:
        with Wire(broker.connect()) as wire:
            wire.create_topic("t")
            wire.produce("t", batch_of(b"a"))
            wire.commit_offsets("g", "t", 0)

    await trio.to_thread.run_sync(prepare)
    proxy = OldKafka(broker.address)
    await nursery.start(proxy.serve)

    def look() -> None:
        with ConsoleProcess(proxy.address, tmp_path / "console.log") as console:
            visitor = Visitor(console.url)
            assert visitor.get("/topics").status == visitor.get("/topics/t").status == 200
            assert [one["outcome"] for one in visitor.json("/data/log/t/0")["batches"]] == ["plain"]
            assert "t:0 0 1 1 1" in visitor.get("/group?id=g").words
            assert "cleanup.policy" in visitor.get("/settings?kind=topic&name=t").words
            wait_for(lambda: "UNSUPPORTED_VERSION" in visitor.get("/").words)
            missing = visitor.get("/transactions")
            assert (missing.status, "does not offer what the page needs" in missing.words) == (502, True)
            assert visitor.get("/metadata").status == 200

    await trio.to_thread.run_sync(look)
    await trio.to_thread.run_sync(broker.stop)
    nursery.cancel_scope.cancel()
