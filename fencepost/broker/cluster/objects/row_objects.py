"""The bytes of rows in objects: one new object for each round, ranges of any object for readers."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from fencepost.broker.cluster.engine import Placement
from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.object_store import ObjectExists, Objects
from fencepost.broker.cluster.objects.owner import BucketOwner
from fencepost.broker.log.storage.store import Bytes

READERS = 16
"""Threads of one `read_many`: a request to a bucket takes some 20 ms, and a takeover reads many objects."""
READ_AHEAD_BYTES = 16 << 20


class RowObjects:
    """The `RowBytes` of a broker. The methods block, and may be called by several threads."""

    def __init__(self, objects: Objects, claims: ClaimPool, owner: BucketOwner | None = None) -> None:
        """`owner` is asked before objects are deleted; None for a reader."""
        self._objects = objects
        self._owner = owner
        self._claims = claims
        self.counters = objects.counters

    def put(self, parts: Sequence[Bytes]) -> int:
        """Put a new object under a claimed id, durable on return. Raises StoreUnavailable.

        After an error the next attempt uses another id; garbage collection deletes what the failed one may have left.
        """
        object_id = self._claims.take()
        try:
            self._objects.put(object_id, parts)
        except ObjectExists:
            self.forget_claims()
            raise
        return object_id

    def forget_claims(self) -> None:
        self._claims.forget()

    def read(self, place: Placement) -> bytes:
        return self._objects.get(place.object_id, place.position, place.size_bytes)

    def read_many(self, places: Sequence[Placement]) -> Iterator[bytes]:
        """Ranges of objects, in this order, read by several threads. Raises StoreUnavailable and CorruptLogFile.

        At most READERS ranges are in memory, and READ_AHEAD_BYTES unless one range is larger.
        """
        if len(places) < 2:
            yield from map(self.read, places)
            return
        waiting: deque[tuple[int, Future[bytes]]] = deque()
        ahead_bytes = 0
        pool = ThreadPoolExecutor(READERS, "fencepost-read")
        try:
            for place in places:
                while waiting and (len(waiting) == READERS or ahead_bytes + place.size_bytes > READ_AHEAD_BYTES):
                    size_bytes, reading = waiting.popleft()
                    ahead_bytes -= size_bytes
                    yield reading.result()
                waiting.append((place.size_bytes, pool.submit(self.read, place)))
                ahead_bytes += place.size_bytes
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            pool.shutdown(cancel_futures=True)

    def ids(self) -> Iterator[int]:
        return self._objects.ids()

    def delete(self, object_ids: Collection[int]) -> None:
        """Delete objects that no row refers to; a missing one is not an error. Raises StoreUnavailable and NotOwner."""
        if object_ids:
            self.check_owner()
            self._objects.delete(object_ids)

    def check_owner(self) -> None:
        if self._owner is not None:
            self._owner.check()
