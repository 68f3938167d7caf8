"""The values of share groups that the admin client returns (KIP-932)."""

from typing import Final, NamedTuple

STATES: Final = ("available", "acquired", "acknowledged", "archiving", "archived", "pending")
"""What may have become of a record: "archiving" is on its way to the dead-letter topic (KIP-1191), and "pending" was
acknowledged in a transaction that is open."""


class RecordRange(NamedTuple):
    """Records of a share group in the same state, from `first_offset` to `last_offset`, both included.

    `state` is "available", "acquired", "acknowledged", "archiving", "archived" or "pending". `delivery_count` counts
    how often they were acquired. `member_id` holds acquired ones, for `lock_ms` more milliseconds. Available ones are
    held back from all members for `lock_ms` more milliseconds. `producer_id` acknowledged pending ones in its open
    transaction. Where these do not apply, they are None.
    """

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str | None = None
    lock_ms: int | None = None
    producer_id: int | None = None

    @property
    def size(self) -> int:
        """How many offsets it has, those without a record included."""
        return self.last_offset - self.first_offset + 1

    @property
    def is_new(self) -> bool:
        """Whether they are available and were never delivered."""
        return self.state == "available" and not self.delivery_count


class RecordStates(NamedTuple):
    """What has become of the records of a share partition; only fencepost brokers report it.

    Below `start_offset` all is done. From `next_offset` on no record was ever acquired. Between them, what no range has
    is available and was never delivered. Not `complete`: the broker has cut the ranges short.
    """

    start_offset: int
    next_offset: int
    ranges: tuple[RecordRange, ...]
    complete: bool

    def whole(self) -> tuple[RecordRange, ...]:
        """The ranges from the start offset to the last known one, those included that were never delivered."""
        found, at = list[RecordRange](), self.start_offset
        for one in self.ranges:
            if one.first_offset > at:
                found.append(RecordRange(at, one.first_offset - 1, "available", 0))
            found.append(one)
            at = one.last_offset + 1
        return tuple(found)

    def at(self, offset: int) -> RecordRange | None:
        """The range that has an offset; None below the start, beyond what was acquired, or where it was cut short."""
        return next((one for one in self.whole() if one.first_offset <= offset <= one.last_offset), None)


class ShareGroupOffset(NamedTuple):
    """Where a share group is in a partition.

    `start_offset` is the first offset that may still be delivered; None before the partition's leader has found it.
    `lag` counts the offsets from there to the high watermark that are not done (Kafka 4.3); None if it is not known.
    """

    start_offset: int | None
    leader_epoch: int
    lag: int | None
    states: RecordStates | None = None
