"""One member of a share group (KIP-932): its identity, subscription and assignment."""

from dataclasses import dataclass, field

from fencepost.coordinator.group.consumer.member import JOIN_EPOCH, Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """The immutable state of a member; every change creates a new value."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The epoch before the last bump: it is still accepted, for the answer with the new one may be lost."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=dict)
