"""Which partition a record goes to: by its key as every Kafka client does it, or in runs where there is no key."""

from fencepost.client.retry import Random

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_CACHE_LIMIT = 20_000


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


class Partitioner:
    """Partition numbers for one topic of a producer.

    Records with a key go where the key's hash says; those without stay on one partition until `next_run` is called
    when its batch is full (KIP-480), so that batches are large.
    """

    __slots__ = ("_by_key", "_count", "_random", "_sticky")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._by_key: dict[bytes, int] = {}
        self._count = 0
        self._sticky = 0

    def choose(self, key: bytes | None, count: int) -> int:
        """The partition out of `count` for a record."""
        if count != self._count:
            self._count = count
            self._by_key.clear()
            self._sticky = int(self._random.random() * count)
        if key is None:
            return self._sticky
        found = self._by_key.get(key)
        if found is None:
            if len(self._by_key) >= _CACHE_LIMIT:
                self._by_key.clear()
            found = self._by_key[key] = (murmur2(key) & 0x7FFFFFFF) % count
        return found

    def next_run(self) -> None:
        """The batch of the current run is full: go on with another partition."""
        if self._count > 1:
            step = 1 + int(self._random.random() * (self._count - 1))
            self._sticky = (self._sticky + step) % self._count
