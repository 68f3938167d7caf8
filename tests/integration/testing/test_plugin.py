"""The pytest plugin, in a run of pytest of its own: fixtures, marker, settings, isolation, reports, and its cost."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing.plugin import _settings

ROOT = Path(__file__).parents[3]

INI = """
[pytest]
filterwarnings = error
fencepost_settings =
    num.partitions=2
    log.retention.ms=60000
"""

TESTS = """
import pytest

seen = []

def test_ini_and_option(fencepost_broker):
    assert fencepost_broker.settings["num.partitions"] == "3"
    assert fencepost_broker.settings["log.retention.ms"] == "60000"

@pytest.mark.fencepost(schema_registry=True)
def test_registry(fencepost_broker, fencepost_schema_registry):
    assert fencepost_broker.schema_registry_url.startswith("http://127.0.0.1:")
    assert fencepost_schema_registry not in ("", fencepost_broker.schema_registry_url)

@pytest.mark.fencepost({"num.partitions": "5"}, directory=True)
def test_marker(fencepost_broker, tmp_path):
    assert fencepost_broker.settings["num.partitions"] == "5"
    fencepost_broker.create_topic("orders")
    fencepost_broker.stop()
    assert fencepost_broker.directory.is_relative_to(tmp_path)
    assert any(fencepost_broker.directory.iterdir())

def test_shared_first(fencepost_shared_broker, fencepost_topic, fencepost_topic_factory):
    assert fencepost_shared_broker.topics()[fencepost_topic] == 1
    seen.append((fencepost_shared_broker.port, fencepost_topic_factory("orders", 2)))
    fencepost_shared_broker.drop(times=None)
    fencepost_shared_broker.kill()

def test_shared_second(fencepost_shared_broker, fencepost_topic_factory):
    port, topic = seen[0]
    assert fencepost_shared_broker.port == port
    assert fencepost_shared_broker.topics()[topic] == 2
    assert fencepost_topic_factory("orders") != topic
    from fencepost import sync
    with sync.Client(fencepost_shared_broker.bootstrap) as client, client.producer() as producer:
        producer.send(topic, b"nothing is dropped any more")

@pytest.fixture
def rude(fencepost_shared_broker):
    yield fencepost_shared_broker
    fencepost_shared_broker.drop(times=None)
    fencepost_shared_broker.kill()

def test_shared_with_a_rude_fixture(rude):
    assert rude.topics()

def test_shared_after_a_rude_fixture(fencepost_shared_broker):
    fencepost_shared_broker.topics()
    from fencepost import sync
    with sync.Client(fencepost_shared_broker.bootstrap, timeout=100) as client, client.admin() as admin:
        assert admin.list_topics()

def die(broker):
    async def fail():
        raise OSError("the disk is gone")
    broker._loop.call(lambda node: broker._loop._nursery.start_soon(fail))
    broker._loop._join()

def test_shared_dies_unheard(fencepost_shared_broker):
    die(fencepost_shared_broker)

def test_shared_lives_again(fencepost_shared_broker):
    assert fencepost_shared_broker.topics()

def test_dies_unheard(fencepost_broker):
    die(fencepost_broker)

@pytest.mark.fencepost("num.partitions=5")
def test_wrong_marker(fencepost_broker):
    pass

def test_imports(fencepost_broker):
    import gc, sys
    assert gc.isenabled()
    names = [name for name in sys.modules if name.startswith("fencepost.broker")]
    assert "fencepost.broker.node" in names
    assert [name for name in names if "rewrite" in type(sys.modules[name].__spec__.loader).__module__] == []

def test_failing(fencepost_broker):
    fencepost_broker.create_topic("orders")
    fencepost_broker.clock.advance(60)
    fencepost_broker.assert_exactly_once("orders", ["one"])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One run of pytest in a project that has the plugin by nothing but the entry point of this project's metadata."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "test_it.py").write_text(TESTS)
    (directory / "pytest.ini").write_text(INI)
    metadata = directory / "site" / "fencepost-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fencepost\nVersion: 0\n")
    named = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["pytest11"]
    lines = [f"{name} = {value}" for name, value in named.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    # pytest rewrites the asserts of all packages of a distribution that brings a plugin, if it has a list of its files.
    (metadata / "RECORD").write_text("fencepost/__init__.py,,\n")
    (directory / "site" / "fencepost").mkdir()
    (directory / "site" / "fencepost" / "__init__.py").touch()
    path = os.pathsep.join([str(ROOT), str(directory / "site")])
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "--strict-config", "-rA"]
    return subprocess.run(
        [*command, "--fencepost-set", "num.partitions=3"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("test_ini_and_option", "PASSED"),
        ("test_marker", "PASSED"),
        ("test_shared_first", "PASSED"),
        ("test_shared_second", "PASSED"),
        ("test_shared_with_a_rude_fixture", "PASSED"),
        ("test_shared_after_a_rude_fixture", "PASSED"),
        ("test_shared_dies_unheard", "ERROR"),
        ("test_shared_lives_again", "PASSED"),
        ("test_dies_unheard", "ERROR"),
        ("test_wrong_marker", "ERROR"),
        ("test_imports", "PASSED"),
        ("test_failing", "FAILED"),
    ],
)
def test_fixtures_hold_what_they_promise(run: subprocess.CompletedProcess[str], test: str, outcome: str) -> None:
    """Settings: the nearest wins. The shared broker: one for all, and each test finds it whole."""
    assert f"{outcome} test_it.py::{test}" in run.stdout, run.stdout + run.stderr


def test_a_failure_shows_what_the_broker_went_through(run: subprocess.CompletedProcess[str]) -> None:
    assert "missing b'one': was never written" in run.stdout
    section = run.stdout.partition("- fencepost broker 127.0.0.1:")[2]
    assert "ready on 127.0.0.1:" in section
    assert "clock put forward by 60 s" in section
    assert "inspection.py" not in run.stdout, "the frames of the assertion itself are hidden"


def test_a_setting_without_a_value_is_a_usage_error() -> None:
    class Config:
        def getini(self, name: str) -> list[str]:
            return ["num.partitions = 2"]

        def getoption(self, name: str, default: Any) -> list[str]:
            return ["num.partitions"]

    config: Any = Config()
    with pytest.raises(pytest.UsageError, match=r"'num\.partitions' is not of the form NAME=VALUE"):
        _settings(config)


def test_who_dies_unheard_and_what_is_written_wrong_is_named(run: subprocess.CompletedProcess[str]) -> None:
    assert "OSError('the disk is gone')" in run.stdout
    assert (
        "is not @pytest.mark.fencepost(settings, directory=..., tls=..., users=..., schema_registry=...)" in run.stdout
    )


def test_a_number_of_lines_that_is_none_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    """Not in the middle of the first failure's report."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfencepost_log_lines = many\n")
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "fencepost.testing.plugin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "fencepost_log_lines = 'many' is no number" in done.stderr


def test_who_asks_for_no_broker_imports_none() -> None:
    """pytest loads the plugin at each start: beside pytest it may bring nothing but this package's own few lines."""
    program = """
import sys
import pytest
before = set(sys.modules)
import fencepost.testing.plugin
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == str(
        ["fencepost", "fencepost.testing", "fencepost.testing.plugin", "fencepost.version"]
    )


def test_a_broker_in_a_script_needs_no_pytest() -> None:
    program = """
import sys
from fencepost.testing import Broker
with Broker() as broker:
    broker.create_topic("orders")
    broker.clock.advance(1)
print("pytest" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"
