"""What a kept worker got from the JVM is acknowledged when a task's function is unpickled; nothing else is touched."""

import os
import pickle
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import StructType

from fencepost.spark_connector.data_source import BatchReader
from fencepost.spark_connector.sink.sink import batch_writer, stream_writer
from fencepost.spark_connector.source.options import Mode, parse_options
from fencepost.spark_connector.source.stream import stream_reader
from fencepost.spark_connector.worker.delayed_ack import acknowledge_now

QUICKACK = getattr(socket, "TCP_QUICKACK", None)
pytestmark = pytest.mark.skipif(QUICKACK is None, reason="this system has no TCP_QUICKACK")

READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "127.0.0.1:1", "checkpointLocation": "/c"}
"""Without a topic: a writer looks for one when it is pickled for the tasks."""
ROWS = StructType().add("value", "binary").add("topic", "string")
FUNCTIONS = {
    "batch reader": lambda: BatchReader(parse_options(READ, Mode.BATCH)),
    "stream reader": lambda: stream_reader(parse_options(READ, Mode.STREAM)),
    "batch writer": lambda: batch_writer({**WRITE, "checkpointLocation": ""}, ROWS, False),
    "stream writer": lambda: stream_writer(WRITE, ROWS),
}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")


@pytest.fixture
def worker_side() -> Iterator[socket.socket]:
    """A connection on which something was answered before, so that the kernel delays what it acknowledges."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        jvm = socket.create_connection(listener.getsockname())
        worker, _ = listener.accept()
        with jvm, worker:
            for _ in range(1000):
                jvm.sendall(b"task")
                worker.recv(4)
                worker.sendall(b"rows")
                jvm.recv(4)
                if delays(worker):
                    break
            assert delays(worker), "this kernel does not delay here"
            yield worker


def delays(sock: socket.socket) -> bool:
    """Linux tells by the option whether it delays acknowledgements on this connection now."""
    assert QUICKACK is not None
    return sock.getsockopt(socket.IPPROTO_TCP, QUICKACK) == 0


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_unpickling_what_a_task_runs_acknowledges_what_has_come(kind: str, worker_side: socket.socket) -> None:
    made = FUNCTIONS[kind]()
    pickled = pickle.dumps(made)
    assert delays(worker_side)
    copy = pickle.loads(pickled)
    assert not delays(worker_side)
    assert copy._options == made._options


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_process_that_is_no_kept_worker_is_left_alone(
    kind: str, worker_side: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    pickle.loads(pickle.dumps(FUNCTIONS[kind]()))
    assert delays(worker_side)


@pytest.mark.usefixtures("kept")
def test_connections_go_on_as_they_were_and_other_files_are_left_open(worker_side: socket.socket) -> None:
    left, right = socket.socketpair()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    lonely = socket.socket()
    reader, writer = os.pipe()
    worker_side.settimeout(50)
    with left, right, udp, lonely, os.fdopen(reader, "rb") as pipe, os.fdopen(writer, "wb") as into:
        acknowledge_now()
        assert not delays(worker_side)
        assert worker_side.gettimeout() == 50
        left.sendall(b"x")
        assert right.recv(1) == b"x"
        into.write(b"y")
        into.flush()
        assert pipe.read(1) == b"y"


@pytest.mark.usefixtures("kept")
def test_a_default_timeout_is_not_put_upon_a_connection(worker_side: socket.socket) -> None:
    assert os.get_blocking(worker_side.fileno())
    socket.setdefaulttimeout(5)
    try:
        acknowledge_now()
    finally:
        socket.setdefaulttimeout(None)
    assert os.get_blocking(worker_side.fileno())
    assert delays(worker_side)
