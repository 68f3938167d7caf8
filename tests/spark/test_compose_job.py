"""The Spark job of docker-compose.yml, with a login, at the broker of docker-compose.secure.yml."""

import threading
from pathlib import Path
from typing import Any

import pytest

from fencepost import sync
from tests.kit.documented_compose import add_spark, secure_broker
from tests.kit.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_job_logs_in_and_counts_what_its_rule_allows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deploy import spark_job

    with secure_broker(tmp_path) as broker:
        add_spark(broker, tmp_path)
        monkeypatch.setenv("BOOTSTRAP_SERVERS", f"localhost:{broker.port}")
        monkeypatch.setenv("CLIENT_CONFIG", str(tmp_path / "secrets" / "spark.properties"))
        monkeypatch.setenv("TOPIC", "events")
        monkeypatch.setenv("CHECKPOINT", str(tmp_path / "checkpoint"))
        job = threading.Thread(target=spark_job.main)
        job.start()
        try:
            until(lambda: spark.streams.active or not job.is_alive(), what="the job's query")
            (query,) = spark.streams.active
            admin = (tmp_path / "secrets" / "admin.properties").read_text().split()
            config = dict(line.split("=", 1) for line in admin)
            with sync.Client.from_config(config) as kafka, kafka.producer() as producer:
                for value in (b"1", b"2", b"3"):
                    producer.send("events", value)
            until(lambda: sum(batch["numInputRows"] for batch in query.recentProgress), lambda rows: rows == 3)
        finally:
            for query in spark.streams.active:
                query.stop()
            job.join(100)
            spark.sparkContext.setLogLevel("ERROR")
        assert not job.is_alive()
        assert "DENIED" not in broker.log()
