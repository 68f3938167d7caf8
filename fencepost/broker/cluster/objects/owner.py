"""The objects of a cluster belong to one database, and say to which: two databases would delete each other's objects.

A restored dump has the same cluster id as its original, so it finds the same objects. It may not use them until
`fencepost store take-over` has made them its own; then the brokers of the other database end. A standby that was
promoted is the same database with a higher timeline: it takes the objects over by itself, and a broker that still
reaches the old primary ends.
"""

import json
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from fencepost.broker.cluster.objects.object_store import RETRY_S, Objects

NOTE = "owner/database"
"""The name of the note among the objects."""
FORMAT = 1
CHECK_SECONDS = 10.0
"""How often a broker reads the note. It also reads it before it deletes objects."""
TAKE_OVER_SECONDS = CHECK_SECONDS + RETRY_S
"""After this time no broker of the other database deletes anything any more."""

EMPTY_READS, EMPTY_SECONDS = 20, 0.05
"""How often and how long to wait for the content of a note."""

logger = logging.getLogger(__name__)


class NotOwner(Exception):
    """The objects belong to another database; the text says to which, and what to run."""


class DatabaseIdentity(NamedTuple):
    """What tells a database from its copies."""

    system: str
    """The system identifier of the server; a standby has that of its primary."""
    database: int
    """The oid of the database."""
    timeline: int
    """It rises when a standby is promoted."""
    place: str
    """For messages."""

    def is_copy_of(self, other: "DatabaseIdentity") -> bool:
        """Whether it is another database, for example a restored dump."""
        return (self.system, self.database) != (other.system, other.database)


class BucketOwner:
    """Compares a database with the note among the objects. The methods block, and raise StoreUnavailable."""

    def __init__(self, objects: Objects, identity: Callable[[], DatabaseIdentity]) -> None:
        """`identity` asks the database. It raises StoreUnavailable."""
        self._objects = objects
        self._identity = identity

    def check(self) -> None:
        """Raise NotOwner if the objects belong to another database. Note this one if there is no note yet, or an older
        timeline.
        """
        mine = self._identity()
        held = self.held()
        if held is None:
            self._objects.write_note(NOTE, _encoded(mine), replace=False)
            held = self.held() or mine  # of two brokers at once one was first
        refusal = refused(mine, held, self._objects.place)
        if refusal is not None:
            raise NotOwner(refusal)
        if held.timeline < mine.timeline:
            logger.warning(
                "the database was promoted, its objects now belong to its new timeline place=%s timeline=%d",
                mine.place,
                mine.timeline,
            )
            self._objects.write_note(NOTE, _encoded(mine), replace=True)

    def held(self) -> DatabaseIdentity | None:
        """The database that the note names; None if there is no note. Raises NotOwner if it cannot be read."""
        found = self._objects.read_note(NOTE)
        for _ in range(EMPTY_READS):
            if found != b"":
                break
            time.sleep(EMPTY_SECONDS)  # a directory shows a file before its content: another broker writes it now
            found = self._objects.read_note(NOTE)
        return None if found is None else _decoded(found, f"{self._objects.place}/{NOTE}")

    def take_over(self) -> DatabaseIdentity:
        """Make the objects belong to this database, which it returns."""
        mine = self._identity()
        self._objects.write_note(NOTE, _encoded(mine), replace=True)
        return mine


def refused(mine: DatabaseIdentity, held: DatabaseIdentity, objects: str) -> str | None:
    """Why a database may not use objects that belong to `held`, and what to do; None if it may."""
    if mine.is_copy_of(held):
        return (
            f"the objects at {objects} belong to another database ({held.place}), not to {mine.place}: only one may use"
            " them. To run a copy of the cluster, give it a copy of the objects at another address. To continue the"
            " cluster with this database, end all brokers of the other one, and run `fencepost store take-over`"
        )
    if mine.timeline < held.timeline:
        return (
            f"{mine.place} has timeline {mine.timeline}, but the objects at {objects} belong to timeline"
            f" {held.timeline} ({held.place}): a standby was promoted, and this server is the old primary. Give the"
            " broker the address of the new one. To continue with this server instead, run `fencepost store take-over`"
        )
    return None


def _encoded(identity: DatabaseIdentity) -> bytes:
    return json.dumps({"format": FORMAT, **identity._asdict()}).encode()


def _decoded(note: bytes, name: str) -> DatabaseIdentity:
    try:
        tree = json.loads(note)
        if tree["format"] != FORMAT:
            raise NotOwner(f"{name} has format {tree['format']}: install a newer fencepost")
        return DatabaseIdentity(str(tree["system"]), int(tree["database"]), int(tree["timeline"]), str(tree["place"]))
    except (ValueError, KeyError, TypeError) as error:
        raise NotOwner(
            f"{name} cannot be read ({error!r}): run `fencepost store take-over` to write it anew"
        ) from error
