"""Several brokers in one process, whose leaders and coordinators move under the test's hand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from fencepost.broker.network.context import Endpoint
from fencepost.protocol.topics import TopicPartition
from fencepost.testing.broker import HOST, Broker
from fencepost.testing.cluster_node import GROUP, TRANSACTION, ClusterNode, listener_of
from fencepost.testing.faults import Delay
from fencepost.testing.faulty_node import FaultyNode
from fencepost.testing.inspection import log_of
from fencepost.testing.leaders import Leaders
from fencepost.testing.relay import Relay
from fencepost.testing.reserved_port import free_port


class Cluster(Broker):
    """Brokers 1 to `brokers` under test: `with Cluster() as cluster: client(cluster.bootstrap)`.

    Clients see several brokers, each at an address of its own. Each answers for the partitions that it leads and for
    the groups and transactional ids that it coordinates, and refuses the rest as Kafka does. Behind them is one broker
    with one log of each partition: nothing is replicated, so no leader can lack a record. `kill`, `stop` and `restart`
    are for all of them together. The other parameters are those of `Broker`.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        directory: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has one at least")
        # Without sessions each Fetch names all its partitions, so that each answer can say which ones have moved.
        given = {"max.incremental.fetch.session.cache.slots": "0", **(settings or {})}
        super().__init__(given, directory=directory, tls=tls, users=users)
        nodes = range(1, brokers + 1)
        self._leaders = Leaders({node: Endpoint(HOST, free_port(self, HOST)) for node in nodes})
        inner = {node: free_port(self, HOST) for node in nodes}
        self.port = inner[1]
        self._targets = {node: (HOST, port) for node, port in inner.items()}
        self._relays: dict[int, Relay] = {}
        self.settings |= {
            "listeners": ",".join(f"{listener_of(node)}://{HOST}:{port}" for node, port in inner.items()),
            "advertised.listeners": ",".join(
                f"{listener_of(node)}://{at}" for node, at in self._leaders.addresses.items()
            ),
            "listener.security.protocol.map": ",".join(f"{listener_of(n)}:{self._security.protocol}" for n in nodes),
        }

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of each broker, with commas, for a client's bootstrap setting."""
        return ",".join(map(str, self._leaders.addresses.values()))

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of each broker, by its id."""
        return {node: (host, port) for node, (host, port) in self._leaders.addresses.items()}

    def start(self) -> Self:
        """Start all of them, as `Broker.start`. A broker that was stopped alone stays so."""
        started = super().start()
        for node in self._leaders.living:
            if node not in self._relays:
                self._relays[node] = Relay(self._leaders.addresses[node].port, self._targets[node])
        return started

    def close(self) -> None:
        """Kill all and release all resources."""
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()
        super().close()

    def heal(self) -> None:
        """Remove all faults, and let all brokers be reached in time again. Stopped ones stay stopped."""
        super().heal()
        for node in self._leaders.living:
            self.reconnect(node)

    def _make(self) -> FaultyNode:
        return ClusterNode(self._config(), self._time, self._store(), self._faults, self.journal, leaders=self._leaders)

    # Who leads what

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition. Raises LookupError if there is no such partition."""
        self._loop.call(log_of, TopicPartition(topic, partition))
        return self._leaders.leader(topic, partition)[0]

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Let another broker lead a partition, in a new epoch. The old one refuses it from now on.

        Raises ValueError for a broker that does not live, LookupError if there is no such partition.
        """
        self._loop.call(log_of, TopicPartition(topic, partition))
        self._leaders.move(topic, partition, to)
        self.journal.note(f"ordered: broker {to} leads {topic}-{partition}")

    def coordinator(self, group: str | None = None, *, transactional_id: str | None = None) -> int:
        """The broker that coordinates a group or a transactional id."""
        return self.leader(*self._coordinator_partition(group, transactional_id))

    def move_coordinator(self, group: str | None = None, *, transactional_id: str | None = None, to: int) -> None:
        """Let another broker coordinate a group or a transactional id, and others of the same internal partition.

        Raises ValueError for a broker that does not live.
        """
        self.move_leader(*self._coordinator_partition(group, transactional_id), to=to)

    def _coordinator_partition(self, group: str | None, transactional_id: str | None) -> tuple[str, int]:
        kind, key = (GROUP, group) if transactional_id is None else (TRANSACTION, transactional_id)
        if key is None or (group is not None and transactional_id is not None):
            raise ValueError("name a group or a transactional id, and not both")

        def find(node: FaultyNode) -> tuple[str, int]:
            assert isinstance(node, ClusterNode)
            return node.coordinator_partition(kind, key)

        return self._loop.call(find)

    @property
    def controller(self) -> int:
        """The broker that metadata name as the controller."""
        return self._leaders.controller

    def move_controller(self, *, to: int) -> None:
        """Name another broker as controller. As in KRaft, each broker answers a controller's requests."""
        self._leaders.check(to)
        self._leaders.controller = to

    # What happens to one of them

    def stop_broker(self, node: int) -> None:
        """Stop one: its connections end, further ones are refused, others lead its partitions.

        Raises ValueError if it does not live, or is the last one.
        """
        self.journal.note(f"ordered: broker {node} stops")
        self._leaders.stop(node)
        self._relays.pop(node).close()

    def start_broker(self, node: int) -> None:
        """Start a stopped one. It leads nothing until something is moved there, or a topic is created."""
        self.journal.note(f"ordered: broker {node} starts")
        self._leaders.start(node)
        self._relays[node] = Relay(self._leaders.addresses[node].port, self._targets[node])

    def cut_off(self, node: int) -> None:
        """Cut one off from all clients: connections stay and are silent. It leads what it led; move that, if you like.

        What clients had sent, arrives at `reconnect`.
        """
        self.journal.note(f"ordered: broker {node} is cut off")
        self._relay(node).cut(True)

    def slow(self, node: int, seconds: float) -> None:
        """Delay what clients send to one, by the machine's clock. Raises ValueError for a time that is none."""
        self._relay(node).delay_seconds = Delay(seconds).seconds
        self.journal.note(f"ordered: requests reach broker {node} {seconds:g} s late")

    def reconnect(self, node: int) -> None:
        """End what `cut_off` and `slow` did to one."""
        relay = self._relay(node)
        relay.delay_seconds = 0.0
        relay.cut(False)

    def _relay(self, node: int) -> Relay:
        self._leaders.check(node)
        return self._relays[node]
