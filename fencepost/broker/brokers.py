"""The brokers in responses to clients: this one, and the others of its cluster."""

from typing import TYPE_CHECKING, Protocol

from fencepost.broker.network.context import RequestContext
from fencepost.broker.partitions import Leader
from fencepost.broker.ports import HasCluster, HasConfig, HasMetadata
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.image import TopicImage


class _Broker(HasCluster, HasConfig, Protocol):
    """What the list needs."""


class _Leading(_Broker, HasMetadata, Protocol):
    """What the leader of a partition needs."""


def brokers(node: _Broker, context: RequestContext) -> list[Leader]:
    """This broker, and the others with a listener of the name that the client uses."""
    own = Leader(node.config.node_id, -1, *context.listener, node.config.broker_rack)
    if node.cluster is None:
        return [own]
    name = context.session.listener_name
    others = [
        Leader(peer.node_id, -1, *peer.listeners[name], peer.rack)
        for peer in node.cluster.peers.values()
        if name in peer.listeners
    ]
    return sorted([own, *others])


def with_leaders(node: HasCluster, topic: "TopicImage") -> "TopicImage":
    """The topic with its leaders."""
    return topic if node.cluster is None else node.cluster.replicas.led(topic)


def controller_id(node: _Broker) -> int:
    """The broker that changes the metadata; this one, which forwards to it, if it is not known or not listed.

    As in KRaft, where a broker names any living one (KIP-590): librdkafka's admin client waits without end for a
    controller if the first answer names none.
    """
    own = node.config.node_id
    if node.cluster is None or node.cluster.controller_id not in node.cluster.peers:
        return own
    return node.cluster.controller_id


def leader(node: _Leading, context: RequestContext, tp: TopicPartition) -> Leader | None:
    """The broker that leads a partition, or coordinates what an internal one holds; None if it is not known."""
    if node.cluster is None:
        return brokers(node, context)[0]
    topic = node.metadata.image.topics_by_name.get(tp.topic)
    if topic is None:
        return None
    slot = node.cluster.ownership.of(topic.topic_id, tp.partition)
    found = next((one for one in brokers(node, context) if one.node_id == slot.broker), None)
    return None if found is None else found._replace(epoch=slot.epoch)
