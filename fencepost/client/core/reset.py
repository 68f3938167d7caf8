"""What a consumer does with a position that is not in the log any more (KIP-320)."""

from typing import NamedTuple

_UNKNOWN = -1


class Truncation(NamedTuple):
    """The log was truncated below the position. `end` is where the leader's log ends the epoch, None if it has none."""

    epoch: int
    end: int | None


def truncated(position: int, position_epoch: int, answered_epoch: int, answered_end: int) -> Truncation | None:
    """What a response to OffsetForLeaderEpoch says of a position whose last record was of `position_epoch`.

    None: the position is valid. As Java's `SubscriptionState.maybeCompleteValidation`: an epoch unknown to the leader,
    or one that ends before the position, means that the log lost records which the consumer has read.
    """
    if answered_epoch == _UNKNOWN or answered_end == _UNKNOWN:
        return Truncation(position_epoch, None)
    if answered_end < position:
        return Truncation(answered_epoch, answered_end)
    return None
