"""The rules of a partition, asked of both engines: files, and a store that binds offsets late."""

from typing import Any

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability import flusher, unflushed
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryStore
from tests.kit.late_log_store import LateLogStore
from tests.unit.log.kit import DEFAULTS, late_log, settle
from tests.unit.log.unflushed_kit import WRITEBACK

OF_RULES = ("test_filtering", "test_idempotence", "test_markers", "test_visibility")
"""The modules whose tests speak of rules, not of files."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of those modules with either engine."""
    if metafunc.module.__name__.rpartition(".")[2] in OF_RULES:
        metafunc.parametrize("engine", ["files", "late"], indirect=True)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the module's `over` open its partition with the engine of this run."""
    if getattr(request, "param", "files") == "late":
        monkeypatch.setattr(request.module, "over", late_over)


def late_over(store: MemoryStore, config: LogConfig = DEFAULTS, durability: str = "os") -> Any:
    """As the kit's `over`, with offsets that are bound late; in `os` every append is bound before it is looked at."""
    log = late_log(LateLogStore(store), config)
    return _BoundAtOnce(log) if durability == "os" else log


class _BoundAtOnce:
    """A log each of whose appends is followed by a commit."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_log":
            super().__setattr__(name, value)
        else:
            setattr(self._log, name, value)

    def append(self, *arguments: Any, **more: Any) -> Ticket:
        return self._bound(self._log.append(*arguments, **more))

    def append_marker(self, *arguments: Any) -> Ticket:
        return self._bound(self._log.append_marker(*arguments))

    def _bound(self, ticket: Ticket) -> Ticket:
        settle(self._log)
        return ticket


@pytest.fixture
def small_steps(monkeypatch):
    """Reliefs of a few batches each."""
    monkeypatch.setattr(unflushed, "WRITEBACK_BYTES", WRITEBACK)
    monkeypatch.setattr(flusher, "WRITEBACK_BYTES", WRITEBACK)
