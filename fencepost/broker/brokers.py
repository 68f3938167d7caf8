"""The brokers in responses to clients: this one, and the others of its cluster."""

from typing import NamedTuple

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.topics import TopicPartition


class Leader(NamedTuple):
    """The broker that leads a partition, as a hint for clients (KIP-951)."""

    node_id: int
    epoch: int
    host: str
    port: int
    rack: str | None = None


def brokers(node: Broker, context: RequestContext) -> list[Leader]:
    """This broker, and the others with a listener of the name that the client uses."""
    own = Leader(node.config.node_id, -1, *context.listener, node.config.broker_rack)
    name = context.session.listener_name
    others = [
        Leader(peer.node_id, -1, where.host or context.listener.host, where.port, peer.rack)
        for peer in node.place.peers.values()
        if (where := peer.listeners.get(name)) is not None
    ]
    return sorted([own, *others])


def controller_id(node: Broker) -> int:
    """The broker that changes the metadata; this one, which forwards to it, if it is not known or not listed.

    As in KRaft, where a broker names any living one (KIP-590): librdkafka's admin client waits without end for a
    controller if the first answer names none.
    """
    found = node.place.controller_id
    return node.config.node_id if found is None or found not in node.place.peers else found


def leader(node: Broker, context: RequestContext, tp: TopicPartition) -> Leader | None:
    """The broker that leads a partition, or coordinates what an internal one holds; None if it is not known."""
    topic = node.metadata.image.topics_by_name.get(tp.topic)
    if topic is None:
        return None
    known, epoch = node.place.leader(topic.topic_id, tp.partition)
    found = next((one for one in brokers(node, context) if one.node_id == known), None)
    return None if found is None else found._replace(epoch=epoch)


def other_leader(node: Broker, context: RequestContext, tp: TopicPartition) -> Leader | None:
    found = leader(node, context, tp)
    return None if found is None or found.node_id == node.config.node_id else found
