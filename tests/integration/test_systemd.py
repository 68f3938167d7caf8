"""The broker as a service of systemd: what it reports to the service manager's socket, and the unit file."""

import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.stores import ON_CLUSTER

UNIT = ROOT / "deploy" / "systemd" / "fencepost.service"
PROGRAM = "/opt/fencepost/bin/fencepost"
STATE = "/var/lib/fencepost"
TIMEOUT_SECONDS = 60.0
LARGEST_EXPOSURE = "25"
"""Of 100, as `systemd-analyze security` counts; a service without any hardening has 96."""


def unit_settings() -> dict[str, list[str]]:
    """The assignments of the unit file, in order, by name."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def received(manager: socket.socket, last: str) -> list[str]:
    """All assignments up to the first datagram with `last`."""
    manager.settimeout(TIMEOUT_SECONDS)
    found: list[str] = []
    while last not in found:
        found += manager.recv(4096).decode().splitlines()
    return found


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_service_manager_is_told_of_start_life_and_stop(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@fencepost-{uuid.uuid4()}"
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0") if kind == "abstract" else name)
        with BrokerProcess(tmp_path / "broker", environment=environment) as broker:
            start = received(manager, "READY=1")
            assert start == ["STATUS=Opening the logs.", "READY=1", f"STATUS=Serving on {broker.address}."]
            assert received(manager, "WATCHDOG=1") == received(manager, "WATCHDOG=1") == ["WATCHDOG=1"]
            assert broker.stop() == 0
            assert "STOPPING=1" in received(manager, "STATUS=Answering the requests in flight and closing the logs.")


def test_a_watchdog_of_another_process_gets_no_messages_and_a_lost_manager_stops_nothing(tmp_path: Path) -> None:
    name = tmp_path / "notify"
    environment = {"NOTIFY_SOCKET": str(name), "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(name))
        with BrokerProcess(tmp_path / "broker", environment=environment) as broker:
            received(manager, "READY=1")
            manager.setblocking(False)
            with broker.connect(), pytest.raises(BlockingIOError):
                manager.recv(4096)
            manager.close()
            assert broker.stop() == 0
            assert "cannot notify the service manager" in broker.log()


class ServiceBroker(BrokerProcess):
    """The broker as the unit starts it: its command and environment, with paths and ports of this machine."""

    def __init__(self, work_dir: Path, options: str = "") -> None:
        self.options = options
        """The value of SERVE_OPTIONS, which systemd splits into words."""
        pairs = (one.partition("=")[::2] for one in unit_settings()["Environment"])
        state = str(work_dir)
        given = {
            name: value.replace(STATE, state).replace(":9092", ":0").replace(":9404", ":0") for name, value in pairs
        }
        super().__init__(work_dir, environment={**given, "FENCEPOST_DURABILITY": "os"})

    def command(self) -> list[str]:
        (line,) = unit_settings()["ExecStart"]
        program, *words = line.split()
        assert program == PROGRAM
        assert words.pop() == "$SERVE_OPTIONS", "without a value, systemd makes no word of it"
        return [sys.executable, "-m", "fencepost", *words, *self.options.split()]


@pytest.mark.skipif(ON_CLUSTER, reason="the unit keeps files")
def test_the_unit_starts_a_broker(tmp_path: Path) -> None:
    assert unit_settings()["Type"] == ["notify"]
    assert unit_settings()["StateDirectory"] == [STATE.rpartition("/")[2]]
    with ServiceBroker(tmp_path / "state") as broker:
        assert broker.facts["data"] == str(tmp_path / "state" / "data")
        assert broker.facts["metrics"].startswith("127.0.0.1:")
        assert broker.stop() == 0


@pytest.mark.skipif(ON_CLUSTER, reason="the unit keeps files")
def test_the_unit_starts_several_cores(tmp_path: Path) -> None:
    with ServiceBroker(tmp_path / "state", "--cores 2") as broker:
        assert len(broker.facts["cores"].split(",")) == 2
        assert broker.stop() == 0


@pytest.mark.parametrize("words", [["verify"], ["security", "--offline=true", f"--threshold={LARGEST_EXPOSURE}"]])
def test_systemd_accepts_the_unit_and_calls_it_hardened(tmp_path: Path, words: list[str]) -> None:
    """`verify` wants the program to exist: here it is another one."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(PROGRAM, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", *words, str(unit)], capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
