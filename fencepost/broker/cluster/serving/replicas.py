"""The brokers that clients see for a partition: its leader, and with racks those that consumers may read from.

All brokers read the same stores, so with `replica.selector.class` each one with a rack counts as an in-sync replica of
every partition. Clients read only from brokers that Metadata lists as replicas (KIP-392).
"""

from collections.abc import Iterable
from dataclasses import replace
from zlib import crc32

from fencepost.broker.cluster.engine import Slot
from fencepost.broker.cluster.ownership import Ownership
from fencepost.broker.peers.peer import Peer
from fencepost.coordinator.metadata.image import PartitionImage, TopicImage

NO_LEADER = -1


class Replicas:
    """The newest known leaders and replicas of all partitions."""

    def __init__(self, ownership: Ownership, own_rack: str | None, selects: bool) -> None:
        """`selects`: consumers may read from other brokers than the leader; otherwise it is the only replica."""
        self._ownership = ownership
        self._selects = selects
        self.own_rack = own_rack
        self._others: dict[int, Peer] = {}
        """The other brokers that consumers may read from: they have racks."""
        self._led: dict[bytes, tuple[TopicImage, TopicImage]] = {}
        self._version = -1

    def see(self, peers: Iterable[Peer]) -> None:
        """These are the other brokers that live. If replicas change, so does the version of `Ownership`."""
        if not self._selects:
            return
        others = {one.node_id: one for one in peers if one.serves and one.rack is not None}
        if others != self._others:
            self._others = others
            self._ownership.version += 1

    def led(self, topic: TopicImage) -> TopicImage:
        """The topic with its leaders: the metadata log holds none, because slots have owners, not partitions."""
        ownership = self._ownership
        if self._version != ownership.version:
            self._version = ownership.version
            self._led.clear()
        known = self._led.get(topic.topic_id)
        if known is None or known[0] is not topic:
            slots = [ownership.of(topic.topic_id, number) for number in range(topic.partitions)]
            known = self._led[topic.topic_id] = topic, replace(topic, assignment=tuple(map(self._partition, slots)))
        return known[1]

    def closest(self, topic_id: bytes, partition: int, rack: str, listener: str) -> int | None:
        """The broker of this rack that a consumer should read a partition from, by rendezvous hashing; it has the
        listener that the consumer uses.

        None if no other broker is closer than this one, which leads the partition.
        """
        if not rack or rack == self.own_rack:
            return None
        near = [broker for broker, one in self._others.items() if one.rack == rack and listener in one.listeners]
        return max(near, key=lambda broker: crc32(topic_id + b"%d/%d" % (partition, broker)), default=None)

    def _partition(self, slot: Slot) -> PartitionImage:
        owner = () if slot.broker is None else (slot.broker,)
        own = () if self.own_rack is None or not self._selects else (self._ownership.broker,)
        replicas = (*owner, *(broker for broker in sorted({*own, *self._others}) if broker != slot.broker))
        leader = NO_LEADER if slot.broker is None else slot.broker
        return PartitionImage(replicas, replicas, leader=leader, leader_epoch=slot.epoch)
