"""docs/comparison.md: the programs that it compares run and end alike, and its figures are those of the files."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.code_lines import code_lines
from tests.kit.example_programs import SURVIVORS, killed_and_run_again, start
from tests.kit.http_service import stop_under_load

PAGE = ROOT / "docs" / "comparison.md"
LIBRARIES = ["aiokafka", "confluent"]
SAYS = {
    "enrichment": SURVIVORS["enrichment"][1],
    "dead_letter": SURVIVORS["dead_letter"][1],
    "parallel_consumer": r"20 of 20 customers in order\n",
}
"""The end of what the programs print that no test kills."""
NAMES = {*SAYS, "bank_transfer", "fastapi_service"}
Running = dict[tuple[str, str], subprocess.Popen[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("comparison")) as process:
        yield process


@pytest.fixture(scope="module")
def running(broker: BrokerProcess) -> Iterator[Running]:
    """Those that are only run, all at once: they mostly wait, each for topics of its own."""
    pairs = [(name, library) for name in SAYS for library in LIBRARIES]
    processes = {(name, library): start(f"compare/{name}_{library}", broker.address) for name, library in pairs}
    yield processes
    for process in processes.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", SAYS)
def test_a_program_ends_as_ours_does(running: Running, name: str, library: str) -> None:
    process = running[name, library]
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert re.search(SAYS[name] + r"\Z", out), out


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_bank_that_is_killed_finishes_when_it_runs_again(broker: BrokerProcess, library: str) -> None:
    _, says = SURVIVORS["bank_transfer"]
    killed_and_run_again(f"compare/bank_transfer_{library}", f"{library}-bank-bookings", says, broker.address)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_service_that_gets_sigterm_loses_no_order(broker: BrokerProcess, library: str, tmp_path: Path) -> None:
    topics = (f"{library}-service-orders", f"{library}-service-invoices")
    stop_under_load(f"compare.fastapi_service_{library}", broker.address, topics, 1, tmp_path)


def test_every_program_is_run() -> None:
    files = {path.stem for path in (ROOT / "examples" / "compare").glob("*.py")} - {"__init__"}
    assert files == {f"{name}_{library}" for name in NAMES for library in LIBRARIES}


def test_the_page_counts_the_lines_of_each_program() -> None:
    cells = re.findall(r"\[(\d+)\]\(\.\./(examples/[\w/]+\.py)\)", PAGE.read_text(encoding="utf-8"))
    assert {name: int(lines) for lines, name in cells} == {name: code_lines(ROOT / name) for _, name in cells}
    ours = {f"examples/{name}.py" for name in NAMES}
    theirs = {f"examples/compare/{name}_{library}.py" for name in NAMES for library in LIBRARIES}
    assert {name for _, name in cells} == ours | theirs


def test_blank_lines_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        '"""One.\n\nTwo.\n"""\n\n# three\nx = """four\n\nfive"""\n\ndef f():\n    """Six."""\n    return x  # y\n'
    )
    assert code_lines(program) == 4


def test_the_page_names_the_versions_that_the_tests_run_against() -> None:
    pins = dict(
        re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = dict(re.findall(r"\*\*(aiokafka|confluent-kafka) ([\d.]+)\*\*", PAGE.read_text(encoding="utf-8")))
    assert named == {name: pins[name] for name in ("aiokafka", "confluent-kafka")}, "check its statements again"
