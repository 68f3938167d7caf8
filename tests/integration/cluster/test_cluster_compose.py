"""docker-compose.cluster.yml, with its brokers as processes, and PostgreSQL and an S3 server of this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from fencepost.client import Client
from tests.kit.compose import ComposeBroker, compose
from tests.kit.postgres_server import PostgresServer
from tests.kit.s3_server import S3Server
from tests.kit.store_commands import empty_database, run

FILE = "docker-compose.cluster.yml"
BUCKET_OF_THE_FILE, BUCKET_OF_THE_SERVER = "s3://records", "s3://fencepost/records"


@pytest.fixture
def environment(server: PostgresServer) -> Iterator[dict[str, str]]:
    """That of the brokers in the file, with the addresses of this machine's servers."""
    given: dict[str, Any] = compose(FILE)["services"]["broker-1"]["environment"]
    with S3Server() as s3:
        changed = {"FENCEPOST_CLUSTER_STORE": empty_database(server), "AWS_ENDPOINT_URL": s3.endpoint}
        assert given["FENCEPOST_CLUSTER_OBJECTS"] == BUCKET_OF_THE_FILE
        yield {**given, **changed, "FENCEPOST_CLUSTER_OBJECTS": BUCKET_OF_THE_SERVER}


def broker_of(tmp_path: Path, number: int, environment: dict[str, str]) -> ComposeBroker:
    service = compose(FILE)["services"][f"broker-{number}"]
    own = {**service, "environment": {}}
    broker = ComposeBroker(tmp_path / f"broker-{number}", own, {}, tmp_path)
    broker.add_places(f"broker-{number}:9092", ("9192", "9292"))
    broker.environment |= environment
    return broker


async def produce(address: str, *values: bytes) -> None:
    async with Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics("events")
        async with kafka.producer() as producer:
            for value in values:
                await producer.send("events", value)


async def consume(address: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with Client(address) as kafka, kafka.consumer("events", auto_offset_reset="earliest") as consumer:
        with trio.fail_after(100):
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    break
    return found


def test_the_second_broker_of_the_file_takes_over(tmp_path: Path, environment: dict[str, str]) -> None:
    with broker_of(tmp_path, 1, environment) as first, broker_of(tmp_path, 2, environment) as second:
        assert (first.facts["role"], second.facts["role"]) == ("active", "standby")
        assert set(first.listeners) == {"CONTAINERS", "HOST"}
        both = f"{first.address},{second.address}"
        trio.run(produce, both, b"small", b"large" * 20_000)
        first.kill()
        assert trio.run(consume, second.address, 2) == [b"small", b"large" * 20_000]
        assert second.stop() == 0
    verified = run("verify", "--store", environment["FENCEPOST_CLUSTER_STORE"], environment=environment)
    assert verified.returncode == 0, verified.stdout + verified.stderr
