"""Fixtures that every kind of test may use."""

import gc
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.broker_process import BrokerProcess
from tests.kit.examples import SHORT
from tests.kit.side_by_side import group_of, turn_of, workers

# How long an example takes says more of the machine than of us. The same examples each time, so that a change is judged
# by what it changed, and fewer of them in `make check`. To look for new ones:
# `make test ARGS="tests/property --hypothesis-profile=explore"`.
NO_CLOCK: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fencepost", derandomize=True, **NO_CLOCK)
settings.register_profile("check", derandomize=True, max_examples=SHORT, **NO_CLOCK)
settings.register_profile("explore", **NO_CLOCK)
settings.load_profile("fencepost")

StartBroker = Callable[..., BrokerProcess]


def pytest_configure(config: pytest.Config) -> None:
    """Have our own plugin also where an installation made before there was one does not name it; know `make check`.

    Commands find no profile of the user who runs the tests.
    """
    os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir()) / "fencepost-tests-without-profiles")
    if config.option.markexpr == "not long":
        settings.load_profile("check")
    if not config.pluginmanager.has_plugin("fencepost"):
        config.pluginmanager.register(import_module("fencepost.testing.plugin"), "fencepost")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means here."""
    return workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where several processes run the tests, one has all of a group."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that take longest begin."""
    items.sort(key=lambda item: turn_of(group_of(item.nodeid)))


def pytest_collection_finish() -> None:
    """What was collected stays: Python's collector of garbage need not go through thousands of tests again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """What other people's clients left open ends with the module that used them, not in the middle of a later test.

    kafka-python forgets sockets whose connect failed. Tests of our own clients collect and judge for themselves.
    """
    yield
    if {"integration", "interop"} & {*request.path.parts}:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers with settings of the test's own: `start_broker(files=True, settings={...}, arguments=[...])`."""
    started: list[BrokerProcess] = []

    def start(*, files: bool = False, **options: Any) -> BrokerProcess:
        work_dir = tmp_path / f"broker-{len(started)}"
        broker = BrokerProcess(work_dir, data_dir=work_dir / "data" if files else None, **options)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.__exit__(None, None, None)


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that keeps everything in memory."""
    return start_broker()


@pytest.fixture(scope="module")
def broker_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker in memory that the tests of one file share; each uses topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as shared:
        yield shared


@pytest.fixture
def file_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker on files, durable by fsync, in a directory of its own."""
    return start_broker(files=True)
