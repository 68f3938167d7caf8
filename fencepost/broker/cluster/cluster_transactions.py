"""Transactions that other brokers coordinate, although the database can lose what they have decided."""

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.cluster.history import EPOCHS_OF_LIFE, History
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.peers.remote_transactions import RemoteTransactions
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.place import Place
    from fencepost.coordinator.ports import TopicView


class ClusterTransactions(RemoteTransactions):
    """The coordinators of the other brokers of a cluster."""

    def __init__(
        self,
        place: "Place",
        topics: "TopicView",
        partitions: int,
        history: History,
        opened: "Callable[[TopicPartition], PartitionLog | None]",
        look: Callable[[], Awaitable[int]],
    ) -> None:
        """`opened` returns an open log; `look` has `history` note the database's position."""
        super().__init__(place, topics, partitions)
        self._history, self._opened, self._look = history, opened, look
        self._looking = trio.Lock()
        self._looked_at = -math.inf
        """When the last look at the database's position began."""

    def lost_some(self, partition: int) -> bool:
        """Whether the database went back before this broker was the first one to lead the partition again."""
        log = self._opened(TopicPartition(TRANSACTION_TOPIC, partition))
        return self._history.follows_loss and log is not None and log.epochs.rise >= EPOCHS_OF_LIFE

    async def _note_position(self) -> None:
        """From now on this broker notices if the database loses what the answer rests on: it may lead no log of the
        transaction in which it could read it. Requests share one look.
        """
        since = trio.current_time()
        async with self._looking:
            if self._looked_at < since:
                began = trio.current_time()
                try:
                    await self._look()
                except StoreUnavailable as error:
                    raise PeerUnavailable(str(error)) from error
                self._looked_at = began
