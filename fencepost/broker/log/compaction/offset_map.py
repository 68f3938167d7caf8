"""The cleaner's offset map: for each key the offset of its last record, in a table of a fixed size.

The slots are in one anonymous mapping: 24 bytes a key instead of two hundred in a dict. The system gets all of it back
at once, and untouched pages cost nothing. The map stores 16 bytes of BLAKE2b for each key. No producer can forge a
collision of that hash, which would delete another key's record.
"""

import mmap
from hashlib import blake2b

DIGEST_BYTES = 16
SLOT_BYTES = DIGEST_BYTES + 8
NOT_FOUND = -1

_EMPTY = bytes(DIGEST_BYTES)


def key_digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """Open addressing over `slots` slots; at most the share `load_factor` is filled. At least one key always fits."""

    def __init__(self, slots: int, load_factor: float = 0.9) -> None:
        self._slots = max(2, slots)
        self._capacity = max(1, min(self._slots - 1, int(self._slots * load_factor)))
        self._bytes = self._slots * SLOT_BYTES
        self._table = mmap.mmap(-1, self._bytes)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        return self._count / self._slots

    def put(self, key: bytes, offset: int) -> bool:
        """Set the key's last offset; `offset` must be above all earlier ones. Returns False if the map is full."""
        digest = key_digest(key)
        at = self._find(digest)
        if at < 0:
            if self._count >= self._capacity:
                return False
            at = ~at
            self._table[at : at + DIGEST_BYTES] = digest
            self._count += 1
        self._table[at + DIGEST_BYTES : at + SLOT_BYTES] = offset.to_bytes(8, "big")
        return True

    def get(self, key: bytes) -> int:
        """The offset of the last record with this key, or NOT_FOUND."""
        at = self._find(key_digest(key))
        return NOT_FOUND if at < 0 else int.from_bytes(self._table[at + DIGEST_BYTES : at + SLOT_BYTES], "big")

    def close(self) -> None:
        self._table.close()

    def _find(self, digest: bytes) -> int:
        """The position of the slot of `digest`; if it has none, the complement (~) of the free slot's position."""
        table, end = self._table, self._bytes
        at = int.from_bytes(digest[:8], "big") % self._slots * SLOT_BYTES
        while (found := table[at : at + DIGEST_BYTES]) != digest:
            if found == _EMPTY:
                return ~at
            at += SLOT_BYTES
            if at == end:
                at = 0
        return at
