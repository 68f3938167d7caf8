"""Which broker should own which slot: pure, so every broker that knows the same members computes the same plan."""

import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache

from fencepost.broker.cluster.engine import SLOTS, Slot


@lru_cache(maxsize=64)
def spread(brokers: frozenset[int]) -> tuple[int, ...]:
    """The broker of each slot, by rendezvous hashing: of those that may own slots, the one with the highest score.

    A broker that comes or goes changes only its own share. `brokers` must not be empty.
    """
    return tuple(max(brokers, key=lambda broker: _score(slot, broker)) for slot in range(SLOTS))


def gathered(slots: Sequence[Slot], brokers: Collection[int], first: int) -> tuple[int, ...]:
    """All slots at one broker: at the owner of slot `first` if it is among `brokers`, else at the lowest id."""
    owner = slots[first].broker
    return (owner if owner is not None and owner in brokers else min(brokers),) * SLOTS


def _score(slot: int, broker: int) -> tuple[bytes, int]:
    return hashlib.blake2b(f"{slot}/{broker}".encode(), digest_size=8).digest(), broker
