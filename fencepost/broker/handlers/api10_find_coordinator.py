"""FindCoordinator (10): the broker that coordinates a group or a transactional id.

v0-6 are served: v1 brings transactional ids, v4 many keys (KIP-699), v5 TRANSACTION_ABORTABLE, v6 the key type of
share groups. Share groups are not served: the broker rejects them like a Kafka broker that has them disabled.
"""

from fencepost.broker.brokers import leader
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import is_allowed
from fencepost.broker.security.rights import ERROR_OF
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition

GROUP, TRANSACTION = 0, 1
_RESOURCES = {GROUP: AclResourceType.GROUP, TRANSACTION: AclResourceType.TRANSACTIONAL_ID}
BATCH_SINCE = 4
NO_NODE = -1


def handle(node: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
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
    error, message = ErrorCode.NONE, None
    found = leader(node, context, _partition(node, key_type, key)) if key_type in (GROUP, TRANSACTION) else None
    if key_type not in (GROUP, TRANSACTION):
        error, message = ErrorCode.INVALID_REQUEST, f"Key type {key_type} has no coordinator here"
    elif not is_allowed(node, context, AclOperation.DESCRIBE, _RESOURCES[key_type], key):
        error = ERROR_OF[_RESOURCES[key_type]]
    elif found is None:
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker leads the coordinator's partition now"
    elif found.node_id == node.config.node_id and (
        node.is_offline(_partition(node, key_type, key)) or _is_refused(node, key_type, key)
    ):
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's log is offline"
    if error or found is None:
        return Coordinator(key=key, error_code=error, error_message=message, node_id=NO_NODE, host="", port=NO_NODE)
    return Coordinator(
        key=key, error_code=error, error_message=None, node_id=found.node_id, host=found.host, port=found.port
    )


def _is_refused(node: Broker, key_type: int, key: str) -> bool:
    """Whether the log is online but the coordinator failed to load it."""
    refusal = node.groups.refusal(key) if key_type == GROUP else node.transactions.runtime.refusal(key)
    return refusal not in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _partition(node: Broker, key_type: int, key: str) -> TopicPartition:
    """The partition of the internal topic that stores a key's state (rows G1, T1)."""
    if key_type == GROUP:
        return TopicPartition(GROUP_TOPIC, node.groups.group_partition(key))
    return TopicPartition(TRANSACTION_TOPIC, node.transactions.runtime.partition_for(key))
