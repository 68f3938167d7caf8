"""What a broker leaves to other brokers, the same on a core of several and in a cluster."""

from functools import partial

from fencepost.broker.network.dispatch import Handler
from fencepost.broker.peers.following import MetadataFollower
from fencepost.broker.peers.forwarding import forwarded
from fencepost.broker.peers.remote_dead_letters import RemoteDeadLetters
from fencepost.broker.peers.remote_offsets import with_remote_offsets
from fencepost.broker.peers.remote_share_states import RemoteShareStates
from fencepost.broker.peers.remote_transactions import RemoteProducerIds, RemoteTransactions
from fencepost.broker.place import Place
from fencepost.broker.ports import Broker
from fencepost.coordinator.ports import ProducerIdSource, TopicView


class AmongPeers(Place):
    """The place of one broker of several."""

    follower: MetadataFollower

    def wrapped(self, api_key: int, handle: Handler) -> Handler:
        return with_remote_offsets(self, api_key, forwarded(self, self.follower, api_key, handle))

    def producer_ids(self, own: ProducerIdSource) -> ProducerIdSource:
        return RemoteProducerIds(self, own)

    def remote_coordinators(self, topics: TopicView, partitions: int) -> RemoteTransactions:
        return RemoteTransactions(self, topics, partitions)

    def share_persister(self, node: Broker) -> RemoteShareStates:
        return RemoteShareStates(self, node, partial(self.follower.catch_up, node))

    def transactional_states(self, node: Broker) -> RemoteShareStates:
        return self.share_persister(node)

    def dead_letters(self, node: Broker) -> RemoteDeadLetters:
        return RemoteDeadLetters(self, partial(self.follower.catch_up, node))
