"""The bytes of rows in objects: one new object for each round, ranges of any object for readers."""

from collections.abc import Collection, Sequence

from fencepost.broker.cluster.claims import ClaimPool
from fencepost.broker.cluster.engine import Placement
from fencepost.broker.cluster.objects import Objects
from fencepost.broker.log.storage.store import Bytes


class RowObjects:
    """The `RowBytes` of a broker. The methods block, and may be called by several threads."""

    def __init__(self, objects: Objects, claims: ClaimPool) -> None:
        self._objects = objects
        self._claims = claims
        self.counters = objects.counters

    def put(self, parts: Sequence[Bytes]) -> int:
        """Put a new object under a claimed id, durable on return. Raises StoreUnavailable.

        After an error the next attempt uses another id; garbage collection deletes what the failed one may have left.
        """
        object_id = self._claims.take()
        self._objects.put(object_id, parts)
        return object_id

    def read(self, place: Placement) -> bytes:
        """A range of an object. Raises StoreUnavailable and CorruptLogFile."""
        return self._objects.get(place.object_id, place.position, place.size_bytes)

    def delete(self, object_ids: Collection[int]) -> None:
        """Delete objects that no row refers to; a missing one is not an error. Raises StoreUnavailable."""
        self._objects.delete(object_ids)
