"""What can go wrong with a call to a simulated disk, and when."""

import errno
from collections.abc import Collection
from dataclasses import dataclass

NEVER = 1 << 62


@dataclass(eq=False)
class Fault:
    """Calls from number `first` to before number `stop` fail with `code`, if their kind and path fit.

    Two of them are never equal: each is taken away from a disk by itself.

    A call that syncs and fails has dropped what it should have made durable: the page cache calls it clean, a later
    sync succeeds, and a power cut loses it.
    """

    first: int
    stop: int = NEVER
    code: int = errno.EIO
    kinds: Collection[str] = ()
    """Kinds of calls that fail; none for all."""
    path_part: str = ""
    takes_bytes: int | None = None
    """A write that is hit first takes so many bytes, and says so, before the next ones fail."""
    hits: int = 0
    """How many calls it has met so far."""

    def applies(self, kind: str, path: str, index: int) -> bool:
        """Whether the call of number `index` fails."""
        return self.first <= index < self.stop and (not self.kinds or kind in self.kinds) and self.path_part in path

    @classmethod
    def once(cls, index: int) -> "Fault":
        """One call fails with EIO, its repetition does not."""
        return cls(index, index + 1)

    @classmethod
    def full(cls, index: int, takes_bytes: int | None = None) -> "Fault":
        """From this call on the disk is full, until the fault is taken away."""
        return cls(index, NEVER, errno.ENOSPC, ("create", "pwrite", "mkdir", "rename"), "", takes_bytes)

    @classmethod
    def short_write(cls, index: int, takes_bytes: int) -> "Fault":
        """One write takes only so many bytes; the next call goes well."""
        return cls(index, index + 1, errno.EIO, ("pwrite",), "", takes_bytes)
