"""One Spark session for all tests, one broker for each module; `FENCEPOST_INTEROP_BOOTSTRAP` names another broker."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.spark import quick_starts

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 100


@pytest.fixture(scope="session")
def installed_spark() -> None:
    """Spark can be started here, and starts quickly. Else the test is skipped."""
    pytest.importorskip("pyspark")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        pytest.skip("Spark needs a JDK: neither JAVA_HOME nor java on the PATH")
    prepare_spark()


@pytest.fixture(scope="session")
def spark(installed_spark: None) -> Iterator[Any]:
    """A Spark of two cores in this process's JVM; its Python workers import the package from this tree."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("fencepost tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stopTimeout", "200s")
        .config("spark.python.authenticate.socketTimeout", "200s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def prepare_spark() -> None:
    """Spark gives a Python worker ten seconds to start; a busy machine needs longer where nothing is compiled yet."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "fencepost-bytecode")
    quick_starts.prepare()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker that keeps everything in memory."""
    given = os.environ.get("FENCEPOST_INTEROP_BOOTSTRAP")
    if given:
        yield given
        return
    with BrokerProcess(tmp_path_factory.mktemp("spark-broker")) as broker:
        yield broker.address


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions that no other test uses."""
    return new_topic(bootstrap, f"spark-{os.urandom(4).hex()}")


def new_topic(bootstrap: str, name: str, partitions: int = 3, **config: str) -> str:
    """A new topic; settings with _ for the dots."""
    admin_module = pytest.importorskip("confluent_kafka.admin")
    from tests.interop.confluent_steps import until_led

    admin = admin_module.AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([admin_module.NewTopic(name, partitions, 1, config=settings)])[name].result(WAIT_SECONDS)
    until_led(admin, name, partitions)
    return name


def create_again(bootstrap: str, topic: str) -> None:
    """Delete it, and make another one of its name."""
    admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT_SECONDS)
    until = time.monotonic() + WAIT_SECONDS
    while True:  # a real Kafka deletes a moment later
        try:
            new_topic(bootstrap, topic)
            break
        except Exception as error:
            if "EXISTS" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.2)


Write = tuple[int, bytes | None]
Transact = Callable[..., None]


@pytest.fixture
def transact(bootstrap: str, topic: str) -> Transact:
    """`transact([(partition, value), ...], commit=True)`: one transaction, written by librdkafka."""
    return transactions_of(bootstrap, topic)


def transactions_of(bootstrap: str, topic: str, **settings: Any) -> Transact:
    producer = new_producer(bootstrap, **settings)

    def write(records: list[Write], commit: bool = True) -> None:
        producer.begin_transaction()
        for partition, value in records:
            producer.produce(topic, value, partition=partition)
        if commit:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            producer.flush(WAIT_SECONDS)
            producer.abort_transaction(WAIT_SECONDS)

    return write


def new_producer(bootstrap: str, **settings: Any) -> Any:
    confluent = pytest.importorskip("confluent_kafka")
    from tests.interop.confluent_steps import LONG_OPEN

    name = f"spark-{os.urandom(4).hex()}"
    producer = confluent.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **LONG_OPEN, **settings}
    )
    producer.init_transactions(WAIT_SECONDS)
    return producer
