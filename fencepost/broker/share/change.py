"""A change of a share partition that has to be stored before it counts."""

from fencepost.broker.share.values import DeadLetters
from fencepost.coordinator.share.values import StateBatch, StateUpdate


class Change:
    """False where there is nothing to store; else store `update(...)`, then `settle`, exactly once."""

    batches: tuple[StateBatch, ...]

    def __bool__(self) -> bool:
        return bool(self.batches)

    def update(self, leader_epoch: int) -> StateUpdate:
        """What to give to the persister, at the partition's leader epoch."""

    def settle(self, stored: bool) -> tuple[DeadLetters, ...]:
        """Commit the change, or roll it back if it could not be stored; what then goes to the dead-letter topic.

        Locks that ended and dead letters that were written count even where they could not be stored.
        """
