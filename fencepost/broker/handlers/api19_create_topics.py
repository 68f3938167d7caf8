"""CreateTopics (19): create topics with partitions and settings, each with its own result.

v1 validateOnly and error messages; v4 -1 for the broker's defaults (KIP-464); v5 the settings in the response
(KIP-525); v7 topic ids. A plan (tag 1000, a fencepost extension) declares more than topics.
"""

from fencepost.broker.config.entries import topic_entries
from fencepost.broker.config.topic_rules import rules_of
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics, is_allowed
from fencepost.coordinator.metadata.commands import CreatedTopic, NewTopic, Outcome
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Plan,
)

SETTINGS_IN_RESPONSE_SINCE = 5
STRICT_QUOTA_SINCE = 6


async def handle(node: Broker, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create the valid topics in one append; the response waits until they are durable."""
    if request.plan is not None:
        return await _apply(node, request, request.plan, context)
    refused: frozenset[str] = frozenset()
    if not is_allowed(node, context, AclOperation.CREATE, AclResourceType.CLUSTER, log_denial=False):
        refused = denied_topics(node, context, AclOperation.CREATE, (topic.name for topic in request.topics))
    created = await node.metadata.create_topics(
        [_wanted(topic) for topic in request.topics if topic.name not in refused],
        request.validate_only,
        limit_mutations(context, STRICT_QUOTA_SINCE),
    )
    same: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    names = [topic.name for topic in created]
    secret = denied_topics(node, context, AclOperation.DESCRIBE_CONFIGS, names, log_denial=False)
    topics = [_answer(node, topic, context.api_version, None if topic.name in secret else same) for topic in created]
    outcome = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    topics += [_answer(node, CreatedTopic(name, outcome), context.api_version, same) for name in refused]
    return CreateTopicsResponse(topics=topics)


async def _apply(
    node: Broker, request: CreateTopicsRequest, plan: Plan, context: RequestContext
) -> CreateTopicsResponse:
    """Apply a plan. A request with a plan and topics is rejected: other brokers would create only the topics."""
    from fencepost.broker.metadata.cluster_plan import apply_plan, refused_plan  # here: few clients have one

    if request.topics:
        both = "A plan and topics cannot be in one request."
        refused = [CreatedTopic(one.name, Outcome(ErrorCode.INVALID_REQUEST, both)) for one in request.topics]
        topics = [_answer(node, one, context.api_version, {}) for one in refused]
        return CreateTopicsResponse(topics=topics, plan=refused_plan(both))
    return CreateTopicsResponse(
        topics=[],
        plan=await apply_plan(node, plan, request.validate_only, context, limit_mutations(context, STRICT_QUOTA_SINCE)),
    )


def _wanted(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=tuple((entry.partition_index, tuple(entry.broker_ids)) for entry in topic.assignments),
        configs={entry.name: entry.value for entry in topic.configs},
    )


def _answer(
    node: Broker,
    topic: CreatedTopic,
    version: int,
    same: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] | None,
) -> CreatableTopicResult:
    """The result for one topic. `same` caches the settings, so that equal ones are built once; None hides them."""
    code, message = topic.outcome
    if code is not ErrorCode.NONE:
        return CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
    if same is None:
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_message=None, topic_config_error_code=hidden
        )
    configs: list[CreatableTopicConfigs] = []
    if version >= SETTINGS_IN_RESPONSE_SINCE:
        alike = frozenset(topic.configs.items())
        if alike not in same:
            same[alike] = _settings(node, topic)
        configs = same[alike]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )


def _settings(node: Broker, topic: CreatedTopic) -> list[CreatableTopicConfigs]:
    rules = rules_of(node)
    entries = topic_entries(topic.configs, rules.started_with, rules.dynamic(node.metadata.image))
    return [CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source) for entry in entries]
