"""FindCoordinator (10): the broker that coordinates a group, a transactional id, or a share partition.

v0-6 are served: v1 brings transactional ids, v4 many keys (KIP-699), v5 TRANSACTION_ABORTABLE, v6 share partitions,
which only brokers look for (KIP-932).
"""

from collections.abc import Coroutine
from typing import Any

from fencepost.broker.brokers import leader
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.authorizer import CLUSTER_NAME
from fencepost.broker.security.checks import is_allowed
from fencepost.broker.security.rights import ERROR_OF
from fencepost.coordinator.share.key_text import key_text, parse_key
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from fencepost.protocol.topics import GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, TopicPartition

GROUP, TRANSACTION, SHARE = 0, 1, 2
_RIGHTS = {
    GROUP: (AclOperation.DESCRIBE, AclResourceType.GROUP),
    TRANSACTION: (AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),
    SHARE: (AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER),
}
BATCH_SINCE = 4
SHARE_SINCE = 6
NO_NODE = -1


def handle(
    node: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    return _of_shares(node, request, context) if request.key_type == SHARE else _answer(node, request, context)


async def _of_shares(node: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """As `_answer`; the topic of share states is created when it is looked for first (KafkaApis)."""
    operation, resource = _RIGHTS[SHARE]
    if node.share_protocol and is_allowed(node, context, operation, resource, CLUSTER_NAME):
        await node.share_states.problem()
    return _answer(node, request, context)


def _answer(node: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version < BATCH_SINCE:
        found = _find(node, request.key_type, request.key, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_find(node, request.key_type, key, context) for key in request.coordinator_keys]
    )


def _find(node: Broker, key_type: int, key: str, context: RequestContext) -> Coordinator:
    """One key's response. If the coordinator's log is offline, the key has no coordinator until the next start."""
    if key_type not in _RIGHTS or (key_type == SHARE and context.api_version < SHARE_SINCE):
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"Key type {key_type} has no coordinator here")
    operation, resource = _RIGHTS[key_type]
    if not is_allowed(node, context, operation, resource, CLUSTER_NAME if key_type == SHARE else key):
        return _no_coordinator(key, ERROR_OF[resource], None)
    try:
        partition = _partition(node, key_type, key)
    except ValueError as error:
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, str(error))
    found = leader(node, context, partition)
    if found is None or (key_type == SHARE and not node.share_protocol):
        return _no_coordinator(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker leads the coordinator's partition now"
        )
    if found.node_id == node.config.node_id and (node.is_offline(partition) or _is_refused(node, key_type, key)):
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's log is offline")
    return Coordinator(
        key=key,
        error_code=ErrorCode.NONE,
        error_message=None,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _no_coordinator(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, error_code=error, error_message=message, node_id=NO_NODE, host="", port=NO_NODE)


def _is_refused(node: Broker, key_type: int, key: str) -> bool:
    """Whether the log is online but the coordinator failed to load it."""
    if key_type == SHARE:
        refusal = node.share_states.runtime.refusal(key_text(parse_key(key)))
    else:
        refusal = node.groups.refusal(key) if key_type == GROUP else node.transactions.runtime.refusal(key)
    return refusal not in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _partition(node: Broker, key_type: int, key: str) -> TopicPartition:
    """The partition of the internal topic that stores a key's state (rows G1, T1).

    Raises ValueError for a key that names no share partition.
    """
    if key_type == GROUP:
        return TopicPartition(GROUP_TOPIC, node.groups.group_partition(key))
    if key_type == TRANSACTION:
        return TopicPartition(TRANSACTION_TOPIC, node.transactions.runtime.partition_for(key))
    return TopicPartition(SHARE_STATE_TOPIC, node.share_states.runtime.partition_for(key_text(parse_key(key))))
