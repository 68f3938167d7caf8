"""Three broker processes over one PostgreSQL that all lead partitions, for tests."""

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.cluster.ownership import spread
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.waiting import until
from tests.kit.wire import ConnectionEnded, Wire

BROKERS = (1, 2, 3)
PARTITIONS = 30
"""Topic ids are random: of fewer partitions one broker could have none."""
SECONDS = 60
ALL = {"cluster.active.brokers": "all"}


class ManyBrokers(ClusterProcesses):
    """Three of them."""

    def start_all(self) -> None:
        """Return when each owns its share."""
        for number in BROKERS:
            self.start(number, **ALL, **self.settings_of(number))
        until(lambda: self.owners() == spread(frozenset(BROKERS)))

    def settings_of(self, number: int) -> dict[str, str]:
        """Further settings of a broker."""
        return {}

    def owners(self) -> tuple[int | None, ...]:
        """The broker of each slot."""
        return tuple(slot.broker for slot in self.engine.slots())

    def shares(self) -> set[int | None]:
        """The brokers that own slots."""
        return set(self.owners())

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition, once all living brokers tell the same, and each partition has one."""

        def told() -> list[dict[int, int]]:
            return [self._leaders(broker, topic) for broker in self.brokers.values() if broker.running]

        found = until(told, lambda answers: all(one == answers[0] and -1 not in one.values() for one in answers))
        return found[0]

    def _leaders(self, broker: ClusterBrokerProcess, topic: str) -> dict[int, int]:
        try:
            with Wire(broker.connect()) as wire:
                (answer,) = wire.call(3, 9, MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
        except (OSError, ConnectionEnded):
            return {0: -1}  # it stops
        return {one.partition_index: one.leader_id for one in answer.partitions} or {0: -1}

    def make(self, topic: str) -> None:
        """A topic over all brokers."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(SECONDS)
        until(lambda: set(self.leaders(topic).values()) == set(BROKERS))


def everything(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """The values of each partition, from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    unread, deadline = set(found), time.monotonic() + SECONDS
    while unread:
        assert time.monotonic() < deadline, f"no end of {unread}"
        for record in consumer.consume(1000, 0.2):
            error, partition = record.error(), record.partition()
            if error is None:
                value = record.value()
                assert value is not None
                assert partition is not None
                found[partition].append(value)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(partition)
    consumer.close()
    return found
