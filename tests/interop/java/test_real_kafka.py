"""The Kafka that other tests start does what they rely on."""

import os
import subprocess
import sys
import textwrap
import time

import trio

import fencepost
from tests.interop.conftest import StartKafka
from tests.interop.java.real_kafka import QUICK_RESTART, RealKafka

SECONDS = 100


def gone(pid: int) -> bool:
    """Whether a process ends within SECONDS."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


async def test_our_client_and_the_levels_of_transactions(real_kafka: RealKafka, real_kafka_tv1: RealKafka) -> None:
    """transaction.version is 2 in the release's defaults, and 1 where the tests ask for it."""
    for kafka, level in ((real_kafka, 2), (real_kafka_tv1, 1)):
        async with fencepost.Client(kafka.address) as client, client.admin() as admin:
            assert (await admin.describe_features()).finalized["transaction.version"] == level


async def test_a_kill_and_a_restart_keep_the_records(start_kafka: StartKafka, name: str) -> None:
    kafka = start_kafka(settings=QUICK_RESTART)
    with trio.fail_after(SECONDS):
        async with fencepost.Client(kafka.address) as client, client.producer() as producer:
            await producer.send(name, b"kept")
    await trio.to_thread.run_sync(kafka.restart)
    with trio.fail_after(SECONDS):
        async with (
            fencepost.Client(kafka.address) as client,
            client.consumer(name, group=None, auto_offset_reset="earliest") as consumer,
        ):
            async for record in consumer:
                assert record.value == b"kept"
                break


def test_it_dies_with_whoever_started_it(real_kafka: RealKafka) -> None:
    """Also when that one is killed and runs no more code: here it is another process of Python's."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from tests.interop.java.real_kafka import RealKafka
        kafka = RealKafka(Path(sys.argv[1]) / "kafka").start()
        print(kafka.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    where = real_kafka.work_dir / "dies"
    where.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", program, str(where)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode < 0, run.stderr
    assert gone(int(run.stdout))
