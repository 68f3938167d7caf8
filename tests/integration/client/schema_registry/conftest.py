"""A registry, clients of it, and a topic."""

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

import fencepost
from tests.integration.client.schema_registry.registry_kit import Connect
from tests.kit.schema_registry import SchemaRegistry


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as found:
        yield found
        found.gate.set()


@pytest.fixture
def connect(registry: SchemaRegistry) -> Iterator[Connect]:
    """Makes clients of the registry, which know nothing of each other's schemas."""
    made: list[SchemaRegistryClient] = []

    def one_more() -> SchemaRegistryClient:
        made.append(SchemaRegistryClient({"url": registry.url, "max.retries": 0, "timeout": 30}))
        return made[-1]

    yield one_more
    for client in made:
        client.close()


@pytest.fixture
async def topic(kafka: fencepost.Client, name: str) -> str:
    async with kafka.admin() as admin:
        await admin.create_topics(name)
    return name
