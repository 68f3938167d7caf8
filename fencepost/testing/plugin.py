"""The pytest plugin: brokers as fixtures, settings by ini, option and marker, the journal's end in failure reports.

pytest loads this at each start if fencepost is installed, so large modules are imported only when a test needs them.
"""

import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from fencepost.testing.broker import Broker
    from fencepost.testing.cluster import Cluster

LINES = 30
_shared = pytest.StashKey["Broker"]()

TopicFactory = Callable[..., str]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the settings of all brokers that the fixtures create, and the length of a report."""
    _import_as_always(pluginmanager)
    parser.addini("fencepost_settings", "settings of the brokers under test, one NAME=VALUE per line", "linelist", [])
    parser.addini("fencepost_log_lines", f"lines of a broker's journal in a failure report (default {LINES})", "string")
    group = parser.getgroup("fencepost", "brokers under test")
    group.addoption(
        "--fencepost-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the brokers under test, under Kafka's name; repeatable, before those of the ini file",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker. Raises UsageError for an invalid setting of this plugin."""
    _lines(config)
    config.addinivalue_line(
        "markers",
        "fencepost(settings=None, *, directory=False, tls=False, users=None, schema_registry=False): settings of the"
        " fencepost_broker of this test; with directory it keeps its data in files, with tls it has a certificate, with"
        " users clients log in, with schema_registry it has a schema registry beside it",
    )


def _import_as_always(pluginmanager: pytest.PytestPluginManager) -> None:
    """Have pytest import fencepost as Python does. It would compile each module again, to explain its assertions.

    With the 300 modules of a broker that took a second in each new environment. pytest has no public name for this;
    without the private one it only takes longer.
    """
    marked = getattr(getattr(pluginmanager, "rewrite_hook", None), "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("fencepost")


@pytest.fixture
def fencepost_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Broker"]:
    """An empty Kafka broker for this test only, in this process: see fencepost.testing.Broker."""
    from fencepost.testing import Broker

    marked = _marked(request.node)
    with Broker(
        {**_settings(request.config), **marked.settings},
        directory=tmp_path / "fencepost" if marked.directory else None,
        tls=marked.tls,
        users=marked.users,
        schema_registry=marked.schema_registry,
    ) as broker:
        yield broker


@pytest.fixture(scope="session")
def fencepost_schema_registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a schema registry for all tests of a session, with a broker of its own behind it.

    Subjects are shared: take their names from topics that only one test uses.
    """
    from fencepost.testing import Broker

    with Broker(_settings(request.config), schema_registry=True) as broker:
        yield broker.schema_registry_url


@pytest.fixture(scope="session")
def fencepost_shared_broker(request: pytest.FixtureRequest) -> Iterator["Broker"]:
    """One Kafka broker for all tests of a session. `fencepost_topic` and `broker.unique` give each test its own names.

    After each test faults are removed, and a broker that was killed is started again.
    """
    from fencepost.testing import Broker

    with Broker(_settings(request.config)) as broker:
        request.config.stash[_shared] = broker
        yield broker
        del request.config.stash[_shared]


@pytest.fixture
def fencepost_topic(fencepost_topic_factory: TopicFactory) -> str:
    """The name of an empty topic for this test only, with one partition, on the shared broker."""
    return fencepost_topic_factory()


@pytest.fixture
def fencepost_topic_factory(fencepost_shared_broker: "Broker", request: pytest.FixtureRequest) -> TopicFactory:
    """Create topics for this test only on the shared broker: `topic = fencepost_topic_factory(partitions=3)`."""

    def make(name: str = "topic", partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        test = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:100]
        return fencepost_shared_broker.create_topic(
            fencepost_shared_broker.unique(f"{test}.{name}"), partitions, configs
        )

    return make


@pytest.fixture
def fencepost_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Cluster"]:
    """Three empty Kafka brokers for this test only: see fencepost.testing.Cluster. The marker is for them, too."""
    from fencepost.testing.cluster import Cluster

    marked = _marked(request.node)
    settings = {**_settings(request.config), **marked.settings}
    directory = tmp_path / "fencepost-cluster" if marked.directory else None
    with Cluster(settings, directory=directory, tls=marked.tls, users=marked.users) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Restore the shared broker after a test and after its fixtures, so that the next test finds it running.

    It runs again before the fixtures end, so that clients can be closed. Raises BrokerGoneError if it has died.
    """
    try:
        _restore(item.config)
    finally:
        try:
            result = yield
        finally:
            _restore(item.config)
    return result


def _restore(config: pytest.Config) -> None:
    broker = config.stash.get(_shared, None)
    if broker is None:
        return
    try:
        broker.check()
    finally:
        broker.heal()
        if not broker.running:
            broker.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journals of the test's brokers to a failure's report."""
    report = yield
    if report.failed:
        for broker in _brokers_of(item):
            tail = broker.journal.tail(_lines(item.config))
            report.sections.append((f"fencepost broker {broker.bootstrap}", tail))
    return report


def _brokers_of(item: pytest.Item) -> list["Broker"]:
    """The brokers among the test's fixtures, also those of other plugins."""
    module = sys.modules.get("fencepost.testing.broker")
    found = getattr(item, "funcargs", {}).values()
    return [value for value in found if isinstance(value, module.Broker)] if module is not None else []


def _lines(config: pytest.Config) -> int:
    text = str(config.getini("fencepost_log_lines") or LINES)
    if not text.isdecimal():
        raise pytest.UsageError(f"fencepost_log_lines = {text!r} is no number")
    return int(text)


def _settings(config: pytest.Config) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in [*config.getini("fencepost_settings"), *config.getoption("fencepost_set", [])]:
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"fencepost setting {line!r} is not of the form NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


class _Marked(NamedTuple):
    """What the markers of a test say of its broker."""

    settings: Mapping[str, str] = {}
    directory: bool = False
    tls: bool = False
    users: Mapping[str, str] | None = None
    schema_registry: bool = False


def _marked(node: Any) -> _Marked:
    """The content of the test's markers. Settings are merged; the nearest marker wins."""

    found = _Marked()
    for mark in reversed(list(node.iter_markers("fencepost"))):
        try:
            found = _merged(found, *mark.args, **mark.kwargs)
        except (TypeError, ValueError):
            wanted = "@pytest.mark.fencepost(settings, directory=..., tls=..., users=..., schema_registry=...)"
            raise pytest.UsageError(f"{mark.args} {mark.kwargs} is not {wanted} with settings by name") from None
    return found


def _merged(before: _Marked, settings: Mapping[str, str] | None = None, **more: Any) -> _Marked:
    return before._replace(settings={**before.settings, **(settings or {})}, **more)
