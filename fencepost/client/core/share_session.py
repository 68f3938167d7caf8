"""A member's share session with one broker (KIP-932): a request names only the partitions that changed.

NEW (epoch 0) --ShareFetch answered--> OPEN (epoch 1, 2, ...) --session error, lost connection--> NEW
                                       '--closed (epoch -1)--> NEW
"""

from collections.abc import Set
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode

NEW_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
Place = tuple[bytes, int]
"""A topic id and a partition."""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class FetchChanges(NamedTuple):
    """The session's part of a ShareFetch: its epoch, the partitions that are new in it, and those that leave it."""

    epoch: int
    added: frozenset[Place]
    forgotten: frozenset[Place]


class ShareSession:
    """One session; at most one request may be under way, because each one takes the next epoch."""

    __slots__ = ("_epoch", "_held")

    def __init__(self) -> None:
        self._epoch = NEW_EPOCH
        self._held: frozenset[Place] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether requests may carry acknowledgements: one that opens a session may not (SharePartitionManager)."""
        return self._epoch != NEW_EPOCH

    def fetch(self, wanted: Set[Place]) -> FetchChanges:
        """The next ShareFetch, for all of `wanted`; one that opens a session names them all."""
        held = self._held if self.is_open else frozenset()
        self._held = frozenset(wanted)
        return FetchChanges(self._epoch, self._held - held, held - self._held)

    def acknowledge(self) -> int:
        """The epoch of the next ShareAcknowledge, which cannot open a session."""
        assert self.is_open, "a ShareAcknowledge cannot open a session"
        return self._epoch

    def answered(self, code: ErrorCode) -> None:
        """The response came. The broker lost the session, or knows another epoch: the next request opens a new one."""
        if code in SESSION_ERRORS:
            self._epoch = NEW_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def lost(self) -> None:
        """No response came, or the connection ended, and with it the session at the broker."""
        self._epoch = NEW_EPOCH

    def close(self) -> int | None:
        """The epoch of the ShareAcknowledge that ends the session and releases all it holds; None without a session."""
        if not self.is_open:
            return None
        self._epoch = NEW_EPOCH
        return FINAL_EPOCH
