"""The partition of a record, as Kafka's Java client chooses it: by the key's hash, or in runs that follow the load.

Pure: the random source is an argument.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_CACHE_LIMIT = 20_000
_POSITIVE = 0x7FFFFFFF
PartitionFunction = Callable[[str, bytes | None, bytes | None, Sequence[Any]], int]
"""A partitioner of the program's own: (topic, key, value, partitions) -> partition number.

Key and value are serialized bytes. `partitions` are the topic's PartitionInfos by number; one whose `leader` is -1
cannot be written to at the moment.
"""


class Random(Protocol):
    """A random source with a method that returns a float in [0, 1), such as `random.Random(seed)`."""

    def random(self) -> float: ...


def murmur2(key: bytes) -> int:
    """The 32-bit hash that Kafka's Java client partitions by, as an unsigned number."""
    length = len(key)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = (int.from_bytes(key[i : i + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    rest = key[whole:]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, count: int) -> int:
    """Java's `toPositive(murmur2(key)) % count`."""
    return (murmur2(key) & _POSITIVE) % count


class KeyHashes:
    """`partition_for_key` for a topic of `count` partitions, with a cache for repeated keys."""

    __slots__ = ("_known", "count")

    def __init__(self, count: int) -> None:
        self.count = count
        self._known: dict[bytes, int] = {}

    def partition(self, key: bytes) -> int:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _CACHE_LIMIT:
                self._known.clear()
            found = self._known[bytes(key)] = (murmur2(key) & _POSITIVE) % self.count
        return found


class Load(NamedTuple):
    """The input for the choice of the next partition.

    `available` are the partitions that have a leader, `queue_sizes` their batches that wait to be sent, both in the
    same order. `left_out` are those of them whose broker has accepted nothing for too long.
    """

    partitions: int
    available: Sequence[int]
    queue_sizes: Sequence[int]
    left_out: frozenset[int] = frozenset()


def cumulative_weights(load: Load) -> tuple[list[int], list[int]] | None:
    """(running sums of weights, partitions): a shorter queue is likelier; None where all are equal (KIP-794)."""
    chosen = [(p, size) for p, size in zip(load.available, load.queue_sizes, strict=True) if p not in load.left_out]
    if not chosen or len(load.available) < 2:
        return None
    most = max(size for _, size in chosen)
    if len(chosen) == len(load.available) and all(size == most for _, size in chosen):
        return None
    sums: list[int] = []
    for _, size in chosen:
        sums.append(most + 1 - size + (sums[-1] if sums else 0))
    return sums, [partition for partition, _ in chosen]


class StickyPartition:
    """The partition for records without a key: one until it got a batch's worth, then another (KIP-794).

    `run_bytes` is `batch_size`. The partition changes once the run has this size and no batch is half full, or has
    twice this size. `adaptive` prefers partitions with short queues.
    """

    __slots__ = ("_adaptive", "_produced", "_random", "_run_bytes", "current", "due")

    def __init__(self, run_bytes: int, random: Random, adaptive: bool = True) -> None:
        self._run_bytes = max(run_bytes, 1)
        self._random = random
        self._adaptive = adaptive
        self._produced = 0
        self.current = -1
        """The partition of the present run; -1 before the first."""
        self.due = False
        """Whether the run has got its bytes, so that the caller must call `settle`."""

    def begin(self, load: Load) -> int:
        """Begin the first run, or another one where the topic has changed."""
        self._produced = 0
        self.due = False
        self.current = self._next(load)
        return self.current

    def produced(self, size_bytes: int) -> bool:
        """Count `size_bytes` for the present partition; returns whether the caller must call `settle` now."""
        self._produced += size_bytes
        self.due = self._produced >= self._run_bytes
        return self.due

    @property
    def room(self) -> int:
        """The maximum number of bytes that may still go to the present partition."""
        return 2 * self._run_bytes - self._produced

    def settle(self, load: Callable[[], Load], all_full: bool) -> None:
        """Change the partition if that is due; `all_full`: no batch of the partition has room left."""
        if (self._produced >= self._run_bytes and all_full) or self._produced >= 2 * self._run_bytes:
            self.begin(load())

    def _next(self, load: Load) -> int:
        number = int(self._random.random() * (_POSITIVE + 1))
        weights = cumulative_weights(load) if self._adaptive else None
        if weights is not None:
            sums, partitions = weights
            return partitions[bisect_right(sums, number % sums[-1])]
        if load.available:
            return load.available[number % len(load.available)]
        return number % load.partitions
