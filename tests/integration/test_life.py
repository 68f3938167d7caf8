"""Start, stop and what goes wrong in between: exit codes, draining, the lock, what is said to people."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import FETCH, ConnectionEnded, Wire, batch_of, fetch_request, values_in

EXIT_USAGE = 2


def run_serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`fencepost serve` that should end by itself."""
    command = [sys.executable, "-m", "fencepost", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_in_order(file_broker: BrokerProcess, number: signal.Signals) -> None:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"kept"))
        file_broker.signal(number)
        assert file_broker.wait() == 0
    assert file_broker.data_dir is not None
    assert (file_broker.data_dir / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in file_broker.log()
    file_broker.start()
    with Wire(file_broker.connect()) as wire:
        assert values_in(wire.fetch("t")) == [b"kept"]


def test_a_parked_fetch_is_answered_when_the_broker_stops(broker: BrokerProcess) -> None:
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        wire.send(FETCH, 11, fetch_request("t", max_wait_ms=30_000))
        with Wire(broker.connect()) as other:
            other.fetch("t")  # answered after the one above was read, so that it is parked by now
        broker.signal(signal.SIGTERM)
        _, response = wire.receive(FETCH, 11)
        assert values_in(response.responses[0].partitions[0]) == []
        assert broker.wait() == 0


def test_writes_that_were_begun_are_answered_when_the_broker_stops(file_broker: BrokerProcess) -> None:
    """Every acknowledged write is there after the restart, and the drain leaves none half done."""
    acknowledged: list[int] = []

    def write() -> None:
        with Wire(file_broker.connect()) as wire:
            try:
                while True:
                    answer = wire.produce("t", batch_of(b"x" * 100))
                    assert answer.error_code == ErrorCode.NONE
                    acknowledged.append(answer.base_offset)
            except (ConnectionEnded, BrokenPipeError, ConnectionResetError):
                pass  # the broker has gone, as it was told to

    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
    writer = threading.Thread(target=write)
    writer.start()
    while len(acknowledged) < 20:
        time.sleep(0.01)
    assert file_broker.stop() == 0
    writer.join()
    file_broker.start()
    with Wire(file_broker.connect()) as wire:
        assert len(values_in(wire.fetch("t"))) == len(acknowledged) == acknowledged[-1] + 1


def test_a_second_broker_on_the_same_directory_is_refused(file_broker: BrokerProcess) -> None:
    ended = run_serve("--data", str(file_broker.data_dir), "--listen", "127.0.0.1:0")
    assert ended.returncode not in (0, None)
    assert "in use by another broker" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_port_that_is_taken_is_named(broker: BrokerProcess) -> None:
    """It may be free later, so that a service manager tries again."""
    ended = run_serve("--memory", "--listen", broker.address)
    assert ended.returncode == 1
    assert str(broker.port) in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "num.partition=4"], ["num.partition", "num.partitions"]),
        (["--set", "num.partitions=many"], ["num.partitions", "many"]),
        (["--listen", "nowhere"], ["nowhere"]),
        (["--memory", "--data", "x"], ["exclude"]),
    ],
)
def test_wrong_settings_are_refused_with_their_names(arguments: list[str], words: list[str]) -> None:
    ended = run_serve(*(["--memory"] if "--memory" not in arguments else []), *arguments)
    assert ended.returncode == EXIT_USAGE
    assert all(word in ended.stderr for word in words)
    assert "Traceback" not in ended.stderr


def test_what_only_the_operator_can_mend_ends_with_the_code_of_a_refused_setting(tmp_path: Path) -> None:
    """systemd does not start the service anew then (RestartPreventExitStatus in deploy/systemd/fencepost.service)."""
    tls = ("--set", "listeners=SSL://127.0.0.1:0", "--set", f"ssl.keystore.location={tmp_path / 'none.p12'}")
    no_keystore = run_serve("--memory", *tls)
    assert (no_keystore.returncode, "none.p12" in no_keystore.stderr) == (EXIT_USAGE, True), no_keystore.stderr
    for package, words in (
        ("trio", ()),
        ("psycopg", ("--store", "postgresql://127.0.0.1:1/x", "--objects", "file:///x")),
    ):
        code = f"import sys; sys.modules[{package!r}] = None; from fencepost.__main__ import main; main()"
        command = [sys.executable, "-c", code, "serve", *words]
        without = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
        assert (without.returncode, "pip install" in without.stderr) == (EXIT_USAGE, True), without.stderr


def test_a_directory_of_another_node_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker(files=True)
    assert broker.stop() == 0
    ended = run_serve("--data", str(broker.data_dir), "--listen", "127.0.0.1:0", "--set", "node.id=7")
    assert ended.returncode not in (0, None)
    assert "meta.properties" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_identity_that_can_not_be_read_stops_the_start(start_broker: StartBroker) -> None:
    broker = start_broker(files=True)
    assert broker.stop() == 0
    assert broker.data_dir is not None
    for name in ("meta.properties", "meta.properties.twin"):
        (broker.data_dir / name).write_bytes(b"")
    ended = run_serve("--data", str(broker.data_dir), "--listen", "127.0.0.1:0")
    assert ended.returncode not in (0, None)
    assert "meta.properties and its copy are damaged" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_metadata_log_that_can_not_be_read_is_kept_and_told_of(start_broker: StartBroker) -> None:
    """The start goes on with what stands before the damage (docs/decisions/0013-damaged-files.md)."""
    broker = start_broker(files=True)
    assert broker.stop() == 0
    assert broker.data_dir is not None
    segment = broker.data_dir / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[100] ^= 0xFF
    segment.write_bytes(data)
    broker.start()
    assert "the metadata log is damaged" in broker.log()
    assert (broker.data_dir / "__cluster_metadata-0.damaged1-stray" / segment.name).read_bytes() == data


def test_a_failed_fsync_ends_the_process_and_nothing_is_acknowledged(
    file_broker: BrokerProcess, tmp_path: Path
) -> None:
    """fsyncgate: after a failed fsync a second try would lie, so there is none (reliability.md, section 1)."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace to fail a system call of the real process")
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
        assert wire.produce("t", batch_of(b"safe")).error_code == ErrorCode.NONE
        with (tmp_path / "strace").open("wb") as said:
            tracer = subprocess.Popen(
                [strace, "-f", "-p", str(file_broker.pid), "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"],
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        try:
            deadline = time.monotonic() + 100
            while "attached" not in (tmp_path / "strace").read_text() and time.monotonic() < deadline:
                time.sleep(0.02)
            with contextlib.suppress(ConnectionEnded):  # it may end before the refusal is out
                assert wire.produce("t", batch_of(b"lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert file_broker.wait() not in (0, None)
        finally:
            tracer.kill()
            tracer.wait()
    assert "cannot continue" in file_broker.log()
    assert "Traceback" not in file_broker.log()


def test_logs_are_json_where_asked(start_broker: StartBroker) -> None:
    broker = start_broker(arguments=["--log-format", "json", "--log-level", "debug"])
    with Wire(broker.connect()) as wire:
        wire.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wire.expect_end()
    assert broker.stop() == 0
    entries = [json.loads(line) for line in broker.log().splitlines()]
    assert any("speaks HTTP" in entry["message"] and entry["level"] == "warning" for entry in entries)


def test_no_process_of_ours_is_left_behind(broker: BrokerProcess) -> None:
    """The harness itself: a killed broker is gone, and its port is free for the next one."""
    pid, port = broker.pid, broker.port
    broker.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    broker.start()
    assert broker.port == port
