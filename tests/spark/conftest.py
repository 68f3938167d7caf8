"""One Spark session for all tests, one broker for each module; `FENCEPOST_INTEROP_BOOTSTRAP` names another broker."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
# For every JVM that a test starts, this process's and those of commands. A short-lived one spends half of its CPU on
# its optimizing compiler.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
WAIT_SECONDS = 100


def java_is_there() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and (Path(home) / "bin" / "java").exists())


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark of two cores in this process's JVM; its Python workers import the package from this tree."""
    pytest.importorskip("pyspark")
    if not java_is_there():
        pytest.skip("Spark needs a JDK: neither JAVA_HOME nor java on the PATH")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    compile_imports()
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


def compile_imports() -> None:
    """Spark gives a Python worker ten seconds to start; a busy machine needs longer where nothing is compiled yet."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "fencepost-bytecode")
    modules = "pyspark.sql.streaming.python_streaming_source_runner, pyspark.worker, pyspark.daemon, pyspark_fencepost"
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True, timeout=250)


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


def new_topic(bootstrap: str, name: str, partitions: int = 3) -> str:
    admin_module = pytest.importorskip("confluent_kafka.admin")
    from tests.interop.confluent_steps import until_led

    admin = admin_module.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([admin_module.NewTopic(name, partitions, 1)])[name].result(WAIT_SECONDS)
    until_led(admin, name, partitions)
    return name


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
