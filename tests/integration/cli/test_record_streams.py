"""What `fencepost produce` and `consume` do with streams, signals and offsets that are not there yet."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.command_line import command_json, whom_to_ask
from tests.kit.console import wait_for
from tests.kit.record_commands import SECONDS, Broker, consume, process, produce, topic


def test_input_that_cannot_be_read_is_an_error(broker: Broker, tmp_path: Path) -> None:
    name, unreadable = topic(broker), os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with process(broker, "produce", name, stdin=unreadable) as refused:
        assert refused.wait(SECONDS) == 1
        assert refused.stderr is not None
        wanted = "fencepost: cannot read -: Bad file descriptor\n  0 records are acknowledged; "
        assert refused.stderr.read().decode().startswith(wanted)
    os.close(unreadable)
    shell = shlex.join([sys.executable, "-m", "fencepost", "produce", name, *whom_to_ask(broker)])
    closed = subprocess.run(["sh", "-c", f"{shell} <&-"], capture_output=True, text=True, check=False)
    assert closed.returncode == 2
    assert "Error: standard input is closed: give the records in a FILE, or a pipe\n" in closed.stderr


def test_sigterm_aborts_the_transaction(broker: Broker) -> None:
    """An open one would hold readers back until its timeout."""
    name = topic(broker)
    words = ["produce", name, "--transaction", "--transactional-id", name]
    with process(broker, *words, stdin=subprocess.PIPE) as sending:
        assert sending.stdin is not None
        sending.stdin.write(b"one\n")
        sending.stdin.flush()
        wait_for(lambda: command_json(broker, "txn", "list", "--state", "Ongoing"))
        sending.terminate()
        assert sending.wait(SECONDS) == 128 + signal.SIGTERM
    assert command_json(broker, "txn", "describe", name)["state"] == "CompleteAbort"
    assert consume(broker, name) == ""


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_fifo_without_a_writer_is_waited_for(broker: Broker, tmp_path: Path, by: signal.Signals, code: int) -> None:
    name, fifo = topic(broker), tmp_path / "fifo"
    os.mkfifo(fifo)
    for other in (True, False):
        with process(broker, "produce", name, "-l", str(fifo), "--json") as sending:
            if other:
                with fifo.open("wb") as sink:
                    sink.write(b"one\n")
                assert sending.wait(SECONDS) == 0
                continue
            wait_for(lambda: fifo_is_read(sending.pid, fifo))
            sending.send_signal(by)
            assert sending.wait(SECONDS) == code
            assert sending.stderr is not None
            assert sending.stderr.read() == b""
    assert consume(broker, name) == "one\n"


def fifo_is_read(pid: int, fifo: Path) -> bool:
    """Whether the process has opened it."""
    opened = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()]
    return str(fifo) in opened


def test_many_files_are_read_one_after_the_other(broker: Broker, tmp_path: Path) -> None:
    name = topic(broker)
    for number in range(100):
        (tmp_path / f"{number:03}").write_text(f"record {number}")
    line = shlex.join([sys.executable, "-m", "fencepost", "produce", name, *whom_to_ask(broker)])
    done = subprocess.run(["sh", "-c", f"ulimit -n 60; {line} {tmp_path}/*"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert consume(broker, name).splitlines() == [f"record {number}" for number in range(100)]


@pytest.mark.parametrize("words", [["topic", "list"], ["consume", "TOPIC", "-e"]])
def test_output_that_cannot_be_written_is_an_error(broker: Broker, words: list[str]) -> None:
    name = topic(broker)
    produce(broker, name, text="one")
    line = shlex.join([name if one == "TOPIC" else one for one in words])
    line = f"{shlex.join([sys.executable, '-m', 'fencepost'])} {line} {shlex.join(whom_to_ask(broker))}"
    done = subprocess.run(["sh", "-c", f"{line} >/dev/full"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "fencepost: cannot write the output: No space left on device\n" in done.stderr


@pytest.mark.parametrize(("words", "read"), [("-o 5 -e", ""), ("-o 5:7", "5\n6\n"), ("-o 5 -c 1", "5\n")])
def test_an_offset_behind_the_end_is_waited_for(broker: Broker, words: str, read: str) -> None:
    """Records before it are never written."""
    name = topic(broker)
    produce(broker, name, text="0\n1\n2")
    with process(broker, "consume", name, *words.split()) as reading:
        assert reading.stderr is not None
        assert reading.stdout is not None
        assert reading.stderr.readline().decode() == f"% Topic {name} [0] ends at offset 3, before 5\n"
        produce(broker, name, text="3\n4\n5\n6" if read else "")
        assert reading.wait(SECONDS) == 0
        assert reading.stdout.read().decode() == read
