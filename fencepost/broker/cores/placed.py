"""A place whose metadata says who leads what: a core, or the one broker that is left of several cores."""

import os
from collections.abc import Iterable, Sequence

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.cores.arranging import arranged, need_in_place
from fencepost.broker.cores.live_moves import LiveMoves
from fencepost.broker.listeners import configured_addresses, end_points
from fencepost.broker.place import Alone, LeaderAndEpoch
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.several_brokers import register_all
from fencepost.coordinator.metadata.start_records import Registration


class Placed(Alone):
    """The leader epochs are those of the metadata, and the coordinator's epoch is the number of its start."""

    knows_cores = True

    def __init__(self, config: BrokerConfig, start: int) -> None:
        super().__init__(config)
        self._start = start
        self._node: Broker | None = None

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        topic = None if self._node is None else self._node.metadata.image.topics_by_id.get(topic_id)
        if topic is None or partition >= topic.partitions:
            return LeaderAndEpoch(None, -1)
        found = topic.assignment[partition]
        return LeaderAndEpoch(found.leader, found.leader_epoch)

    @property
    def coordinator_epoch(self) -> int:
        return self._start

    async def load_metadata(self, node: Broker) -> None:
        self._node = node
        await super().load_metadata(node)


class OneOfSeveral(Placed):
    """The one broker of a directory that several cores used before.

    Its epochs go on: a partition refuses the markers of a coordinator of a lower epoch than it has seen.
    """

    async def load_metadata(self, node: Broker) -> None:
        await super().load_metadata(node)
        await register_cores(node, [self._config])
        assert self._config.data_directory is not None, "cores have files"
        LiveMoves(node, self._config.data_directory, self.node_id).recover()


async def register_cores(node: Broker, configs: Sequence[BrokerConfig]) -> None:
    """As the controller, make known which brokers there are now, and who leads what.

    Raises LogWriteFailed, OSError, and WrongDirectory if partitions are elsewhere.
    """
    need_in_place(configs[0], len(configs), node.metadata.image)
    await register_all(node.metadata, registrations(configs))
    root = configs[0].data_directory
    assert root is not None, "cores have files"
    arranged(root)


def registrations(configs: Iterable[BrokerConfig]) -> dict[int, Registration]:
    """Of cores that begin, by their node ids."""
    return {
        one.node_id: Registration(os.urandom(16), end_points(one, configured_addresses(one)), one.broker_rack)
        for one in configs
    }
