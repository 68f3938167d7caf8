"""The numbers in tests/golden/kafka_partitions.json are still what Kafka's own producer says."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.java.jars import class_path, java
from tests.interop.java.kafka_jvm import KafkaJvm

pytestmark = pytest.mark.interop
GOLDEN = Path(__file__).parents[2] / "golden"


def test_kafka_says_the_same_today(kafka: KafkaJvm, tmp_path: Path) -> None:
    """Kafka's murmur2, partitionForKey and BuiltInPartitioner, asked again with the same seed."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("a JDK is needed to compile KafkaPartitions.java: there is no javac")
    jars = class_path()
    subprocess.run(
        [compiler, "-nowarn", "-d", tmp_path, "-cp", jars, GOLDEN / "KafkaPartitions.java"], check=True, timeout=300
    )
    main = "org.apache.kafka.clients.producer.internals.KafkaPartitions"
    said = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", "-cp", f"{tmp_path}:{jars}", main],
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert json.loads(said.stdout) == json.loads((GOLDEN / "kafka_partitions.json").read_text(encoding="utf-8"))
