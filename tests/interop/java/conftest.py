"""One data directory in three states, and one JVM, for all tests with Kafka's own tools."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.java.jars import Unavailable
from tests.interop.java.kafka_jvm import KafkaJvm
from tests.interop.java.written import Shown, shown_directories
from tests.kit.java import skip_or_fail

STATES = ("stopped", "killed", "recovered")


@pytest.fixture(scope="package")
def kafka() -> Iterator[KafkaJvm]:
    """Kafka's tools; without Java or a way to fetch the jars, skip, or fail where FENCEPOST_REQUIRE_JAVA is set."""
    with ExitStack() as stack:
        try:
            jvm = stack.enter_context(KafkaJvm())
        except Unavailable as missing:
            skip_or_fail(missing)
        yield jvm


@pytest.fixture(scope="package")
def directories(kafka: KafkaJvm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """The data directory after a stop, after a kill, and after the start that follows."""
    return {shown.state: shown for shown in shown_directories(tmp_path_factory.mktemp("java"))}


@pytest.fixture(params=STATES)
def shown(directories: dict[str, Shown], request: pytest.FixtureRequest) -> Shown:
    """Each of the three."""
    return directories[request.param]


@pytest.fixture
def mine(directories: dict[str, Shown], tmp_path: Path, request: pytest.FixtureRequest) -> Shown:
    """A copy that a test may change; it names the state by @pytest.mark.parametrize("mine", [...], indirect=True)."""
    original = directories[request.param]
    shutil.copytree(original.data_dir, tmp_path / "data")
    return replace(original, data_dir=tmp_path / "data")
