"""The rows of the tables of a SimDatabase."""

from enum import IntEnum
from typing import NamedTuple


class BrokerRow(NamedTuple):
    """What the database knows of one broker."""

    incarnation: int
    session: int
    commit_seq: int
    bases: tuple[int, ...]
    """The answer of the last commit."""
    seen_ms: int
    left: bool
    addresses: str
    draining: bool = False


class ObjectState(IntEnum):
    """An object begins as a claim. A commit makes it live; garbage collection marks it as doomed."""

    CLAIMED = 0
    LIVE = 1
    DOOMED = 2


class ObjectRow(NamedTuple):
    """What the database knows of one object."""

    state: ObjectState
    live: int
    """The number of rows that refer to it."""
    at_ms: int
    """When it was claimed."""
