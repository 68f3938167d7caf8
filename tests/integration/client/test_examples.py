"""The small programs of examples/, run as they stand there, each against the same broker process."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.example_programs import OTHERS, SURVIVORS

SAYS = {
    "produce_consume": r"offset 0\nread 1000 records\n",
    "exactly_once": r"500 orders, 500 invoices, each once\n",
    "two_consumers": r"together: .*\nalone: .*\n",
    "arrow_table": r"sensor-0: mean 9997\.5 of 4000\n(.*\n){4}",
    "administration": r"INVALID_TOPIC_EXCEPTION\ncreated: admin-orders, admin-payments\n(.*\n)*cleaned up\n",
    "without_trio": r"2000 records there and back, and no more\n",
}
ELSEWHERE = {"__init__", "fastapi_service", "two_phase_commit", *SURVIVORS, *OTHERS}
"""A service and a library, which have tests of their own; test_example_programs.py runs the programs of a page."""


@pytest.fixture(scope="module")
def fresh_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that no example was run against before."""
    with BrokerProcess(tmp_path_factory.mktemp("examples")) as broker:
        yield broker


def test_every_example_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} - ELSEWHERE == set(SAYS)


@pytest.mark.parametrize("example", SAYS)
def test_an_example(fresh_broker: BrokerProcess, example: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", f"examples.{example}", fresh_broker.address],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert re.search(SAYS[example] + r"\Z", run.stdout), run.stdout
