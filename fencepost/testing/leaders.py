"""Which broker of a cluster under test leads a partition, and which brokers are there."""

import zlib
from collections.abc import Mapping

from fencepost.broker.network.context import Endpoint
from fencepost.broker.place import LeaderAndEpoch


class Leaders:
    """The table behind a `Cluster`: tests change it in their threads, the broker reads it in its own."""

    def __init__(self, addresses: Mapping[int, Endpoint]) -> None:
        self.addresses = dict(addresses)
        """Where clients find each broker, by its id."""
        self.controller = min(addresses)
        self._down: set[int] = set()
        self._leaders: dict[tuple[str, int], LeaderAndEpoch] = {}

    @property
    def living(self) -> list[int]:
        """The ids of the brokers that were not stopped."""
        return [node for node in self.addresses if node not in self._down]

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """The leader and its epoch. Partitions of a topic are spread over the brokers until they move."""
        found = self._leaders.get((topic, partition))
        if found is None:
            living = self.living
            chosen = living[(zlib.crc32(topic.encode()) + partition) % len(living)]
            found = self._leaders[topic, partition] = LeaderAndEpoch(chosen, 0)
        assert found.leader is not None, "each partition has one"
        return found.leader, found.epoch

    def move(self, topic: str, partition: int, to: int) -> None:
        """Make a broker the leader, in a new epoch. Raises ValueError for a broker that is unknown or stopped."""
        self.check(to)
        before, epoch = self.leader(topic, partition)
        if before != to:
            self._leaders[topic, partition] = LeaderAndEpoch(to, epoch + 1)

    def stop(self, node: int) -> None:
        """Take a broker out; others lead its partitions. Raises ValueError for the last one."""
        self.check(node)
        if self.living == [node]:
            raise ValueError(f"broker {node} is the last one: kill() and stop() end the whole cluster")
        self._down.add(node)
        living = self.living
        if self.controller == node:
            self.controller = living[0]
        led = [tp for tp, found in list(self._leaders.items()) if found.leader == node]
        for number, (topic, partition) in enumerate(led):
            self.move(topic, partition, living[number % len(living)])

    def start(self, node: int) -> None:
        """Take a stopped broker in again; it leads what it is given from now on."""
        if node not in self._down:
            raise ValueError(f"broker {node} is not stopped")
        self._down.discard(node)

    def check(self, node: int) -> None:
        """Raise ValueError if no living broker has this id."""
        if node not in self.living:
            raise ValueError(f"there is no living broker {node}, but {self.living}")
