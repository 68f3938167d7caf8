"""The only module in which a producer's sequence number wraps: 2**31 - 1 is followed by 0 (row P2)."""

NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1
_SPAN = MAX_SEQUENCE + 1


def advance(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`, wrapped into 0..2**31 - 1."""
    return (sequence + count) % _SPAN


def last_of(base: int, count: int) -> int:
    """The sequence of the last of `count` records that begin at `base`; NO_SEQUENCE for NO_SEQUENCE."""
    return NO_SEQUENCE if base == NO_SEQUENCE else advance(base, count - 1)


def continued(last: int, first: int, delta: int) -> int:
    """The last sequence of a batch that begins at `first` and ends `delta` records later, if it follows directly on one
    that ended at `last`; else NO_SEQUENCE.
    """
    return (first + delta) % _SPAN if first == (last + 1) % _SPAN else NO_SEQUENCE


def is_next(last: int, first: int) -> bool:
    """Whether a batch that begins at `first` follows directly on a batch that ended at `last` (row P2)."""
    return first == advance(last, 1)
