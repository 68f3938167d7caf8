"""examples/spark_etl.py: its processes are killed after a micro-batch, and the program is run again."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.kit.example_programs import run, start, values

pytestmark = pytest.mark.spark
WAIT_SECONDS = 200


def test_each_order_is_copied_once_though_spark_is_killed(
    installed_spark: None, bootstrap: str, tmp_path: Path
) -> None:
    arguments = ("spark_etl", bootstrap, str(tmp_path / "checkpoint"))
    with start(*arguments) as process:
        ends = time.monotonic() + WAIT_SECONDS
        try:
            while not values(bootstrap, "etl-large"):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < ends
                time.sleep(0.1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the driver's Python, its JVM and their workers
            process.wait(100)
    part = values(bootstrap, "etl-large").total()
    code, out = run(*arguments)
    assert code == 0, out
    assert "1000 orders, 370 large ones, 370 copies\n" in out
    assert 0 < part < 370, "the kill fell into the work"
