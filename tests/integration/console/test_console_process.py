"""The process around the console: how it starts, stops, and behaves when its broker is not there."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import trio

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
        assert (run.returncode, f"cannot listen at {where}" in run.stderr) == (1, True), run.stderr
        assert "Traceback" not in run.stderr
        with pytest.raises(BrokerFailed, match="in use"):
            BrokerProcess(tmp_path, arguments=["--console", where]).start()


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
