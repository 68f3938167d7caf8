"""Open transactions of which a crash may have kept a marker but not the decision: they are decided again (0080)."""

import logging
import math
from collections.abc import Callable

import trio

from fencepost.coordinator.ports import HowEnded, LogWriteFailed, MarkerWriter
from fencepost.coordinator.txn import epochs, expiry
from fencepost.coordinator.txn.commands import Command, EndTxn
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.ids import TxnShard

logger = logging.getLogger(__name__)

WARN_AFTER_SECONDS = 60.0
"""Many logs take their time to open."""
NAMED_MAX = 20
"""The most transactional ids in one line of the log."""


class Doubts:
    """Asks the partitions of each open transaction that was loaded for its marker, before anything else.

    A marker that proves the decision may be durable before the Prepare record (`is_evidence`). If one is
    found, the same is decided again. As long as a partition cannot be read, the transaction is in doubt: its id is
    neither served nor timed out, because its outcome may be known to readers of that partition.
    """

    def __init__(
        self, writer: MarkerWriter, decide: Callable[[TxnShard, str, Command], object], config: TxnConfig
    ) -> None:
        """`decide` decides for an id, and raises LogWriteFailed."""
        self._writer = writer
        self._decide = decide
        self._config = config
        self._shards: dict[str, TxnShard] = {}

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._shards

    def __bool__(self) -> bool:
        return bool(self._shards)

    def resume(self, nursery: trio.Nursery, shard: TxnShard) -> None:
        """Look at all open transactions of a shard that was loaded; those in doubt are looked at again until clear."""
        had_some = bool(self._shards)
        self._shards.update(dict.fromkeys(shard.state.open, shard))
        self.look()
        if self._shards and not had_some:
            nursery.start_soon(self._look_again)

    def forget(self, shard: TxnShard) -> None:
        """The shard is unloaded: the broker that loads it next has its doubts."""
        for name in [name for name, other in self._shards.items() if other is shard]:
            del self._shards[name]

    def look(self) -> None:
        """Decide what can be decided now."""
        for name, shard in list(self._shards.items()):
            if self._is_clear(name, shard):
                del self._shards[name]

    async def _look_again(self) -> None:
        warn_at = trio.current_time() + WARN_AFTER_SECONDS
        for seconds in self._config.marker_pauses():
            if not self._shards:
                return
            if trio.current_time() >= warn_at:
                warn_at = math.inf
                logger.warning(
                    "%d open transactions wait for logs that cannot be read, because these may know that they were"
                    " committed: repair the logs or delete their topics; transactional ids: %s",
                    len(self._shards),
                    ", ".join(sorted(self._shards)[:NAMED_MAX]),
                )
            await trio.sleep(seconds)
            self.look()

    def _is_clear(self, name: str, shard: TxnShard) -> bool:
        state = shard.state.open.get(name)
        if state is None or state.is_kept or epochs.is_exhausted(state.producer.epoch):
            return True  # it has ended, or its markers never come first
        producer_id, epoch = state.producer.producer_id, state.producer.epoch
        ended = self._writer.how_ended(producer_id, epoch + 1, state.partitions)
        if ended is HowEnded.NOT_ENDED:
            return True
        if ended is HowEnded.UNKNOWN:
            return False
        commits = ended is HowEnded.COMMITTED
        command: Command = EndTxn(producer_id, epoch, True, 2) if commits else expiry.time_out(state, None)
        logger.info("transactional id %r: decided again, as a marker tells that it is %s", name, ended.name.lower())
        try:
            self._decide(shard, name, command)
        except LogWriteFailed as error:
            logger.warning("transactional id %r: %s; the coordinator tries again", name, error)
            return False
        return True
