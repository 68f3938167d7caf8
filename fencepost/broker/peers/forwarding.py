"""A broker forwards to the controller what clients may ask any broker for (KIP-590).

Kafka's brokers forward changes of the metadata to the controller. Clients rely on that: they send such requests to any
broker.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import trio

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.network.reply import Ready, Reply, ready
from fencepost.broker.peers.envelope import ask_for
from fencepost.broker.peers.following import MetadataFollower
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.broker.ports import Broker
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataResponse
from fencepost.protocol.registry import API_BY_KEY

OF_CONTROLLER = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS})
"""Reads that only the controller can answer."""
CHANGES = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""Changes of the metadata."""
SETTINGS = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""Changes of settings, of which some are for this broker alone."""
FORWARDED = CHANGES | OF_CONTROLLER | {ApiKey.METADATA, ApiKey.OFFSET_FETCH}
"""What an envelope may hold: Metadata creates missing topics; `remote_offsets` says why OffsetFetch."""
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE})
"""A topic that this broker does not know, or not yet."""
PATIENCE_SECONDS = 10.0
"""How long a request waits for a controller: longer than a takeover lasts, shorter than clients wait."""
RETRY_SECONDS = 0.1

logger = logging.getLogger(__name__)


def forwarded(place: Place, follower: MetadataFollower, api_key: int, handle: Handler) -> Handler:
    """The handler of an API, which passes to the controller what only that can do."""
    if api_key not in CHANGES | OF_CONTROLLER | {ApiKey.METADATA}:
        return handle

    def forwarding(node: Broker, request: Any, context: RequestContext) -> Reply:
        own = partial(handle, node, request, context)
        if place.is_controller or context.session.forwarded:
            return own()
        if api_key in SETTINGS:
            return _settings(place, request, context, partial(handle, node))
        if api_key == ApiKey.METADATA:
            return _newest(place, partial(follower.catch_up, node), request, context, own)
        return _at_controller(place, request, context, own)

    return forwarding


async def _settings(
    place: Place, request: Any, context: RequestContext, handle: Callable[[Any, RequestContext], Reply]
) -> Ready:
    """The controller's answer about each resource, and this broker's own about those that only it can judge.

    These are the levels of its loggers, and what names another broker (Kafka's ConfigAdminManager.preprocess).
    """
    own = [_is_own(resource, place.node_id) for resource in request.resources]
    parts = {
        side: [one for one, mine in zip(request.resources, own, strict=True) if mine is side] for side in (True, False)
    }
    here, there = (type(request)(resources=part, validate_only=request.validate_only) for part in parts.values())
    answer: Any = await ready(handle(here, context))
    if there.resources:
        others: Any = await _at_controller(place, there, context, partial(handle, there, context))
        mine, its = iter(answer.responses), iter(others.responses)
        answer.responses = [next(mine if one else its) for one in own]
    return cast(Ready, answer)


def _is_own(resource: Any, node_id: int) -> bool:
    other = resource.resource_type == ConfigResourceType.BROKER and resource.resource_name not in ("", str(node_id))
    return other or resource.resource_type == ConfigResourceType.BROKER_LOGGER


async def _newest(
    place: Place,
    catch_up: Callable[[], Awaitable[None]],
    request: Any,
    context: RequestContext,
    own: Callable[[], Reply],
) -> Ready:
    """The answer to Metadata; if this broker does not know a topic, after it has read what the controller has written.

    So a client that has created a topic finds it at every broker. The controller creates topics that the request may
    create.
    """
    answer = await ready(own())
    if UNKNOWN.isdisjoint(_errors(answer)):
        return answer
    await catch_up()
    answer = await ready(own())
    if ErrorCode.LEADER_NOT_AVAILABLE in _errors(answer):
        await _at_controller(place, request, context, lambda: None)
        await catch_up()
        answer = await ready(own())
    return answer


def _errors(answer: Ready) -> set[int]:
    return {topic.error_code for topic in answer.topics or ()} if isinstance(answer, MetadataResponse) else set()


async def _at_controller(place: Place, request: Any, context: RequestContext, own: Callable[[], Reply]) -> Ready:
    """The controller's answer; this broker's own if it becomes the controller, or if there is none for long."""
    until, problem = trio.current_time() + PATIENCE_SECONDS, "the cluster has no controller now"
    while not place.is_controller and trio.current_time() < until:
        target = place.controller_id
        if target is not None and target != place.node_id:
            try:
                return await ask_for(place.links, target, request, context)
            except PeerUnavailable as error:
                problem = str(error)
        await trio.sleep(RETRY_SECONDS)
    if not place.is_controller:
        logger.warning("a request of %s is not forwarded: %s", API_BY_KEY[context.api_key].name, problem)
    return await ready(own())
