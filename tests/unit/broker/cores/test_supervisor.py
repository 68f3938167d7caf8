"""When the supervisor starts a core again, and when it ends."""

import dataclasses
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cores import supervisor
from fencepost.broker.cores.supervisor import Supervisor


def layout_in(directory: Path, cores: int) -> Any:
    """A layout without sockets: the cores of these tests serve nothing. The file `cores` may have another number."""

    @dataclasses.dataclass(frozen=True)
    class Plain:
        root: Path
        first: int
        start: int = 0
        alive_fd: int = -1
        supervisor_fd: int = -1

        @property
        def cores(self) -> int:
            path = self.root / "cores"
            return int(path.read_text()) if path.exists() else self.first

        def grown(self, cores: int) -> "Plain":
            return self

        def tell_running(self, cores: int) -> None:
            assert cores >= self.cores

        def tell_cores(self, cores: int) -> None:
            (self.root / "new").write_text(str(cores))
            (self.root / "new").replace(self.root / "cores")
            os.write(self.supervisor_fd, b"1")

    return Plain(directory, cores)


def run(directory: Path, serve: Any, cores: int = 2, *, stops: bool = False) -> tuple[int, list[str]]:
    """In a process of its own, as the supervisor has its own signals; the exit code, and what it reported."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code = 99

        def report(missing: Any) -> None:
            os.write(write, f"without-{sorted(missing)} ".encode())
            if stops:
                made.stop()

        try:
            made = Supervisor(
                layout_in(directory, cores),
                serve,
                report,
                lambda: None,
                0,
            )
            code = made.run()
        finally:
            os._exit(code)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read) as said:
        return os.waitstatus_to_exitcode(status), said.read().split()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_SECONDS", 0.01)


def test_a_core_that_ended_starts_again_with_a_higher_number(tmp_path: Path) -> None:
    """A start's number is the epoch of its transaction coordinator: none has it twice."""

    def serve(layout: Any, number: int, pipe: int) -> int:
        with (tmp_path / f"core-{number}").open("a") as file:
            file.write(f"{layout.start}\n")
        os.write(pipe, b"1")
        starts = len((tmp_path / "core-1").read_text().split()) if number else 0
        if number and starts < 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if number:
            os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
        return 0

    code, said = run(tmp_path, serve)
    assert (code, said) == (0, ["without-[]"])
    starts = [int(word) for name in ("core-0", "core-1") for word in (tmp_path / name).read_text().split()]
    assert sorted(starts) == [1, 2, 3, 4, 5]


def test_it_ends_if_core_0_was_never_ready(tmp_path: Path) -> None:
    """Without its metadata no core serves: a service manager must see that the start failed."""

    def serve(layout: Any, number: int, pipe: int) -> int:
        if not number:
            return 3
        signal.pause()
        return 0

    assert run(tmp_path, serve) == (3, [])


def test_the_others_serve_without_a_core_that_cannot_start(tmp_path: Path) -> None:
    """A service manager waits for the report: without it, it would end the cores that serve. Later all are there."""

    def serve(layout: Any, number: int, pipe: int) -> int:
        if number == 2 and layout.start < 3 + supervisor.TRIES:
            return 1
        os.write(pipe, b"1")
        if number == 2:
            time.sleep(0.2)
            os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
        return 0

    assert run(tmp_path, serve, cores=3) == (0, ["without-[2]", "without-[]"])


def test_it_ends_if_the_report_stops_it(tmp_path: Path) -> None:
    """So end the cores of the last start, once every outcome is known."""

    def serve(layout: Any, number: int, pipe: int) -> int:
        os.write(pipe, b"1")
        signal.pause()
        return 0

    assert run(tmp_path, serve, stops=True) == (0, ["without-[]"])


def pauses(made: Supervisor, ready: bool) -> list[float]:
    """How long the first core waits after each of many short lives."""
    core = made._cores[0]
    found = []
    for _ in range(12):
        core.began, core.is_ready = time.monotonic(), ready
        made._put_off(core)
        found.append(core.pause)
    return found


def test_the_pause_of_a_core_that_was_ready_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other core leads its partitions; one that cannot start may wait longer."""
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE_SECONDS", 1000.0)
    made = Supervisor(layout_in(tmp_path, 1), lambda *_: 0, lambda _: None, lambda: None, 0)
    assert max(pauses(made, True)) == supervisor.LONGEST_PAUSE_OF_READY_SECONDS
    assert max(pauses(made, False)) > 10 * supervisor.LONGEST_PAUSE_OF_READY_SECONDS


def test_a_signal_during_a_start_is_not_lost(tmp_path: Path) -> None:
    """A core that has no handlers of its own yet ends by it."""

    def serve(layout: Any, number: int, pipe: int) -> int:
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
        return 0

    code, _ = run(tmp_path, serve, cores=5)
    assert code == 0


def test_a_start_without_a_process_left_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes or memory, such as of a container, must not end the cores that serve."""
    forks, fork = 0, os.fork

    def scarce() -> int:
        nonlocal forks
        forks += 1
        if 4 <= forks <= 6:  # this process, core 0 and core 1 have begun
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    def serve(layout: Any, number: int, pipe: int) -> int:
        os.write(pipe, b"1")
        if number and layout.start == 2:
            return 1
        if number:
            os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
        return 0

    monkeypatch.setattr(os, "fork", scarce)
    assert run(tmp_path, serve) == (0, ["without-[]"])


def test_a_core_that_never_gets_a_process_is_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager waits for the report of the others."""
    forks, fork = 0, os.fork

    def scarce() -> int:
        nonlocal forks
        forks += 1
        if forks > 2:
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    def serve(layout: Any, number: int, pipe: int) -> int:
        os.write(pipe, b"1")
        signal.pause()
        return 0

    monkeypatch.setattr(os, "fork", scarce)
    assert run(tmp_path, serve, stops=True) == (0, ["without-[1]"])


def test_the_pause_grows_while_a_core_that_lived_long_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it would be tried, and logged, ten times a second."""
    made = Supervisor(layout_in(tmp_path, 1), lambda *_: 0, lambda _: None, lambda: None, 0)
    (core,) = made._cores
    core.began = time.monotonic() - 100

    def full(root: Path, wait: bool) -> int:
        raise OSError("No space left on device")

    monkeypatch.setattr(supervisor, "next_start", full)
    pauses = []
    for _ in range(3):
        made._start(core)
        pauses.append(core.pause)
    assert pauses == sorted(set(pauses))


def test_a_core_that_fails_says_why(tmp_path: Path) -> None:
    """What its process raises before the broker runs reaches the log: else only its exit code did."""
    said = tmp_path / "log"

    def serve(layout: Any, number: int, pipe: int) -> int:
        logging.getLogger().addHandler(logging.FileHandler(said))
        raise RuntimeError("no such place")

    assert run(tmp_path, serve) == (1, [])
    assert "no such place" in said.read_text()


def test_the_number_of_cores_changes_while_they_run(tmp_path: Path) -> None:
    """New cores start, those that are too many are stopped and do not start again; each change is reported."""

    def starts() -> list[int]:
        paths = [tmp_path / f"core-{number}" for number in range(4)]
        return [len(path.read_text()) if path.exists() else 0 for path in paths]

    def serve(layout: Any, number: int, pipe: int) -> int:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        with (tmp_path / f"core-{number}").open("a") as file:
            file.write("1")
        os.write(pipe, b"1")
        for count, expected in ((4, [1, 1, 1, 1]), (2, [1, 1, 1, 1]), (3, [1, 1, 2, 1])) if not number else ():
            layout.tell_cores(count)
            children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children")
            while starts() != expected or len(children.read_text().split()) != count:
                time.sleep(0.01)
        if not number:
            os.kill(os.getppid(), signal.SIGTERM)
        while True:
            signal.pause()

    code, said = run(tmp_path, serve)
    assert code == 0
    assert set(said) == {"without-[]"}
    assert starts() == [1, 1, 2, 1]
