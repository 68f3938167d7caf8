"""Requests to the metadata handlers through their bytes in both directions, against an in-memory service."""

from dataclasses import dataclass, field
from importlib import import_module
from inspect import isawaitable
from typing import Any

import pytest

from fencepost.broker.config.broker_config import BrokerConfig, load_config
from fencepost.broker.metadata.answers import MetadataAnswers
from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.network.reply import Encoded
from fencepost.broker.place import Alone
from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.protocol.registry import API_BY_KEY
from tests.unit.metadata.kit import started

HANDLERS = {
    3: "api03_metadata",
    19: "api19_create_topics",
    20: "api20_delete_topics",
    32: "api32_describe_configs",
    33: "api33_alter_configs",
    37: "api37_create_partitions",
    43: "api43_elect_leaders",
    44: "api44_incremental_alter_configs",
    50: "api50_describe_user_scram_credentials",
    51: "api51_alter_user_scram_credentials",
    57: "api57_update_features",
    60: "api60_describe_cluster",
    64: "api64_unregister_broker",
    74: "api74_list_config_resources",
    75: "api75_describe_topic_partitions",
}
TOPIC_BITS, CLUSTER_BITS = 0b1101_1111_1000, 0b1_1111_1010_0000
NOT_ASKED = -(2**31)


@dataclass
class NodeDouble:
    """What these handlers ask of a node."""

    config: BrokerConfig
    metadata: MetadataService
    metadata_answers: MetadataAnswers = field(default_factory=MetadataAnswers)
    authorizer: None = None

    def __post_init__(self) -> None:
        self.place = Alone(self.config)


async def node(*settings: str) -> NodeDouble:
    config = load_config(assignments=settings)
    cluster = await started(config=config)
    await cluster.service.create_topics([NewTopic("a", 3, configs={"retention.ms": "5"}), NewTopic("b")])
    return NodeDouble(config, cluster.service)


def messages(key: int) -> Any:
    return import_module(f"fencepost.protocol.messages.{HANDLERS[key]}")


async def ask(on: NodeDouble, key: int, version: int, request: Any) -> Any:
    """Send `request` through its bytes, handle it, send the answer through its bytes."""
    api = API_BY_KEY[key]
    request = api.request.decode(api.request.encode(request, version), version)
    context = RequestContext(key, version, 1, "client", Session("127.0.0.1", Endpoint("host", 9092)))
    answer = import_module(f"fencepost.broker.handlers.{HANDLERS[key]}").handle(on, request, context)
    if isawaitable(answer):
        answer = await answer
    encoded = b"".join(answer.parts) if isinstance(answer, Encoded) else api.response.encode(answer, version)
    return api.response.decode(encoded, version)


def versions(*keys: int) -> pytest.MarkDecorator:
    pairs = [(key, v) for key in keys for v in range(API_BY_KEY[key].served[0], API_BY_KEY[key].served[1] + 1)]
    return pytest.mark.parametrize("version", [version for _, version in pairs])
