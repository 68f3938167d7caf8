"""The start offset of each leader epoch: clients detect truncation with it (row L10, KIP-101, KIP-279, KIP-320)."""

import logging

from fencepost.broker.log.storage.checkpoints import LEADER_EPOCHS, decode_epochs, encode_epochs
from fencepost.broker.log.storage.store import CorruptLogFile, Store

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

logger = logging.getLogger(__name__)


class LeaderEpochs:
    """The epochs of one partition by rising start offset, stored in Kafka's `leader-epoch-checkpoint`."""

    def __init__(self, store: Store, entries: list[tuple[int, int]]) -> None:
        self._store = store
        self._entries = entries

    @classmethod
    def load(cls, store: Store) -> "LeaderEpochs":
        """Read the checkpoint. A damaged one is logged and rebuilt, because the batches carry their epochs."""
        place = f"{store.place}/{LEADER_EPOCHS}"
        try:
            return cls(store, decode_epochs(store.load(LEADER_EPOCHS), place))
        except CorruptLogFile as error:
            logger.warning("damaged leader epochs are rebuilt from the batches: %s", error)
            return cls(store, [])

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else UNDEFINED_EPOCH

    @property
    def rise(self) -> int:
        """By how much the last epoch is above that of the records before it; 0 without such records."""
        return self._entries[-1][0] - self._entries[-2][0] if len(self._entries) > 1 else 0

    def note(self, epoch: int, start_offset: int) -> bool:
        """Add the epoch of a batch at `start_offset`, if it is new. Returns whether it was new."""
        if self._entries and self._entries[-1][0] >= epoch:
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """Store a new epoch before its first batch is written at `start_offset`. Raises OSError; then nothing has."""
        before = list(self._entries)
        if self.note(epoch, start_offset):
            try:
                self.save()
            except OSError:
                self._entries = before
                raise

    def save(self) -> None:
        """Replace the checkpoint. Raises OSError."""
        self._store.replace(LEADER_EPOCHS, encode_epochs(self._entries), whole=True)

    def truncate(self, end_offset: int) -> None:
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if unknown."""
        found = UNDEFINED_EPOCH
        for epoch, start_offset in self._entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """KIP-101: the largest epoch at or below `epoch`, and its end offset.

        (-1, -1) if the log does not hold the beginning of that epoch.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        below = UNDEFINED_EPOCH
        for known, start_offset in self._entries:
            if known > epoch:
                return (below if below != UNDEFINED_EPOCH else epoch), start_offset
            below = known
        return UNDEFINED_EPOCH, UNDEFINED_OFFSET
