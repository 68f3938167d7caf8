"""What tools and metrics ask about the tables of a cluster's database."""

from typing import NamedTuple


class TableSize(NamedTuple):
    """A table of the cluster's database."""

    name: str
    rows: int
    """As the last ANALYZE or VACUUM estimated it."""
    size_bytes: int
    """With its indexes."""


class ObjectUse(NamedTuple):
    """What the database has about an object to which rows refer."""

    object_id: int
    state: int | None
    """0 claimed, 1 live, 2 marked for deletion; None if the database does not know the object."""
    counted: int
    """How many rows the database believes refer to it. At 0 garbage collection deletes the object."""
    rows: int
    """How many rows refer to it."""
