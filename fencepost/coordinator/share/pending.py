"""What open transactions acknowledged, in one partition of `__share_group_state` (after KIP-1289's draft)."""

from collections.abc import Iterable, Mapping, Sequence

from fencepost.coordinator.share.values import PendingBatch, ShareKey, StateBatch


class PendingAcks:
    """By producer id, as committed offsets are pending in `coordinator/group/offsets.py`."""

    def __init__(self) -> None:
        self._open: dict[int, dict[ShareKey, list[StateBatch]]] = {}
        self._since: dict[int, int] = {}
        """Where the first records of each transaction are in the log."""

    def add(self, producer_id: int, key: ShareKey, batches: Iterable[StateBatch]) -> None:
        """A transaction acknowledged records; those of one share partition do not overlap."""
        self._open.setdefault(producer_id, {}).setdefault(key, []).extend(batches)

    def place(self, producer_id: int, offset: int) -> None:
        """Note where records of a transaction are in the log; its marker may have come meanwhile."""
        if producer_id in self._open:
            self._since.setdefault(producer_id, offset)

    def of(self, key: ShareKey) -> tuple[PendingBatch, ...]:
        """What is pending of a share partition."""
        return tuple(
            PendingBatch(producer_id, batch)
            for producer_id, shares in self._open.items()
            for batch in shares.get(key, ())
        )

    def take(self, producer_id: int) -> tuple[Mapping[ShareKey, Sequence[StateBatch]], int]:
        """The transaction of a producer has ended: what it acknowledged, and where its first records are.

        0 if that is not known.
        """
        return self._open.pop(producer_id, {}), self._since.pop(producer_id, 0)

    def forget(self, key: ShareKey) -> None:
        """The share partition is deleted or begins again: no transaction decides on it any more."""
        for shares in self._open.values():
            shares.pop(key, None)

    @property
    def first_offsets(self) -> Iterable[int]:
        """Where the first records of each open transaction are in the log."""
        return self._since.values()
