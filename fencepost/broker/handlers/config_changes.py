"""Which changes of settings the broker that a client asks refuses itself (Kafka's ConfigAdminManager.preprocess)."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_resource
from fencepost.coordinator.metadata.commands import ConfigEdits, Outcome
from fencepost.coordinator.metadata.config_controller import broker_name_problem
from fencepost.protocol.admin_enums import AclOperation, ConfigResourceType


def refusal(node: Broker, context: RequestContext, change: ConfigEdits) -> Outcome | None:
    """Why the change is refused: a missing right, or another broker's settings, which only that broker may change.

    None if the controller decides. A forwarded change was checked by the broker that the client asked.
    """
    kind, name = change.resource_type, change.resource_name
    denied = denied_resource(node, context, AclOperation.ALTER_CONFIGS, kind, name)
    if denied:
        return Outcome(denied)
    if kind == ConfigResourceType.BROKER and not context.session.forwarded:
        return broker_name_problem(name, node.config.node_id)
    return None
