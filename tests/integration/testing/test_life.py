"""A broker under test that cannot start, will not end, or dies: what is raised, and what is let go."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from fencepost.broker.log.storage.lock import lock_directory
from fencepost.testing import Broker, BrokerGoneError, loop_thread
from fencepost.testing import broker as broker_module
from fencepost.testing.faulty_node import FaultyNode

ROOT = Path(__file__).parents[3]


def may_be_locked(directory: Path) -> bool:
    """Raises DirectoryInUse where it may not."""
    os.close(lock_directory(directory))
    return True


def die(broker: Broker) -> None:
    """A failure of the broker's own, in one of its tasks; returns when it is dead."""

    async def fail() -> None:
        raise OSError("the disk is gone")

    loop = broker._loop
    loop.call(lambda node: loop._nursery and loop._nursery.start_soon(fail))
    loop._join()


def test_it_is_not_started_twice(fencepost_broker: Broker) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        fencepost_broker.start()
    assert fencepost_broker.running


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_directory_is_free_while_it_is_down(tmp_path: Path, how: str) -> None:
    """As after the end of a process: what only looks at the files may do so."""
    with Broker(directory=tmp_path) as broker:
        broker.create_topic("orders")
        getattr(broker, how)()
        assert may_be_locked(tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "fencepost", "verify", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        broker.start()
        assert broker.topics() == {"orders": 1}


def test_the_first_broker_imports_nothing_that_it_does_not_use() -> None:
    """Imports are most of what the first test of a process waits for (docs/benchmarks.md, a broker in a test)."""
    program = (
        "import sys\nfrom fencepost.testing import Broker\nwith Broker() as broker:\n"
        " assert not broker.bootstrap.endswith(':0')\n print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    sasl = "fencepost.broker.security.sasl"
    unused = {f"{sasl}.{name}" for name in ("oauthbearer", "plain", "scram", "unsecured")}
    unused |= {"fencepost.testing.refusals", "click", "cryptography", "prometheus_client", "psycopg"}
    assert unused & set(done.stdout.split()) == set()


def test_a_port_that_is_not_to_be_had_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(owner: object, host: str) -> int:
        raise OSError("no port is free")

    broker = Broker(directory=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(broker_module, "reserve_port", refuse)
        with pytest.raises(OSError, match="no port"):
            broker.start()
    assert may_be_locked(tmp_path)
    assert not broker.running
    with broker:
        assert broker.topics() == {}


def test_a_port_that_somebody_else_has_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        broker = Broker(directory=tmp_path)
        broker.port = other.getsockname()[1]
        with pytest.raises(OSError, match=r"(?i)address already in use"):
            broker.start()
    assert not broker.running
    assert may_be_locked(tmp_path)
    broker.close()


def test_a_start_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the directory is not let go while anybody is still at work in it."""

    async def hang(self: FaultyNode, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await trio.sleep_forever()

    broker = Broker(directory=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(loop_thread, "START_SECONDS_MAX", 0.2)
        patch.setattr(FaultyNode, "run", hang)
        with pytest.raises(BrokerGoneError, match="did not start within"):
            broker.start()
        assert not broker.running
    with broker:
        assert broker.topics() == {}


def test_who_died_unheard_is_heard_at_the_end() -> None:
    """A test that looked elsewhere must not pass over it."""
    broker = Broker()
    with pytest.raises(BrokerGoneError, match="the disk is gone") as raised, broker:
        die(broker)
    assert raised.value.__cause__ is not None
    broker.close()
    broker.check()


def test_who_was_told_is_not_told_again() -> None:
    with Broker() as broker:
        die(broker)
        with pytest.raises(BrokerGoneError, match="the disk is gone"):
            broker.topics()
        broker.start()
        assert broker.topics() == {}


def test_a_failure_of_the_test_is_not_hidden_by_that_of_the_broker() -> None:
    def test() -> None:
        with Broker() as broker:
            die(broker)
            raise AssertionError("the test's own")

    with pytest.raises(AssertionError, match="the test's own"):
        test()
