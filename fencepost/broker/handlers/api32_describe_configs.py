"""DescribeConfigs (32): settings with their value, their source and their synonyms (KIP-226).

v0 has isDefault for the source; v1 synonyms; v3 types and documentation (KIP-569).
"""

from fencepost.broker.config.client_metrics import metrics_entries
from fencepost.broker.config.entries import ConfigEntry, broker_entries, default_broker_entries, topic_entries
from fencepost.broker.config.group_settings import group_entries
from fencepost.broker.config.loggers import logger_entries, logger_name_problem
from fencepost.broker.config.topic_rules import rules_of
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_resource
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.config_controller import broker_name_problem
from fencepost.coordinator.metadata.topic_names import topic_name_problem
from fencepost.protocol.admin_enums import AclOperation, ConfigResourceType, ConfigSource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(node: Broker, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        refused = denied_resource(node, context, AclOperation.DESCRIBE_CONFIGS, kind, name)
        found = Outcome(refused) if refused else _entries(node, kind, name)
        result = DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        if isinstance(found, Outcome):
            result.error_code, result.error_message = found
        else:
            keys = frozenset(resource.configuration_keys or ())
            result.configs = [_result(entry, request) for entry in found if not keys or entry.name in keys]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(node: Broker, resource_type: int, name: str) -> list[ConfigEntry] | Outcome:
    rules, image = rules_of(node), node.metadata.image
    if resource_type == ConfigResourceType.TOPIC:
        problem = topic_name_problem(name)
        if problem is not None:
            return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = image.topics_by_name.get(name)
        if topic is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic_entries(topic.configs, rules.started_with, rules.dynamic(image))
    if resource_type == ConfigResourceType.BROKER:
        wrong = _broker_name_problem(name, node.config.node_id)
        if wrong is not None:
            return wrong
        if not name:
            return default_broker_entries(rules.dynamic(image))
        return broker_entries(rules.started_with, rules.dynamic(image))
    if resource_type == ConfigResourceType.GROUP:
        if not name:
            return Outcome(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(image.group_config(name), rules.started_with, rules.dynamic(image))
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            return Outcome(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return metrics_entries(image.client_metrics_config(name))
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        return logger_name_problem(name, node.config.node_id) or logger_entries()
    return Outcome(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _broker_name_problem(name: str, node_id: int) -> Outcome | None:
    """The same check as for altering a broker's settings, with Kafka's messages for describing them."""
    if broker_name_problem(name, node_id) is None:
        return None
    if not name.lstrip("-").isdigit():
        return Outcome(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    why = f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
    return Outcome(ErrorCode.INVALID_REQUEST, why)


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=origin.name, value=None if entry.secret else origin.value, source=origin.source)
        for origin in entry.synonyms
    ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.secret else entry.value,
        is_sensitive=entry.secret,
        read_only=entry.read_only,
        is_default=entry.source is ConfigSource.DEFAULT_CONFIG,
        config_source=entry.source,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=entry.kind,
        documentation=entry.documentation if request.include_documentation or not entry.documentation else None,
    )
