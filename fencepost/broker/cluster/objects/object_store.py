"""The bytes of a cluster's logs: immutable objects in a bucket, or in a directory that all brokers share.

A broker puts an object once, whole, under an id that it claimed in the database; brokers get ranges of it. So there is
no checksum of a whole object. Damage is detected where a row's bytes enter a broker: `get` returns all bytes of the
range or raises, each batch has its CRC-32C, and the row in the database names the number of offsets.

All methods block; a broker calls them in threads.
"""

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.cluster.objects.claims import ID_BITS
from fencepost.broker.log.storage.store import Bytes, CorruptLogFile
from fencepost.coordinator.histogram import Histogram
from fencepost.extras import needed_for

LIST_PAGE = 1000
CHECKED = b"fencepost"
ABSENT = "check/none"
NOTE_BYTES_MAX = 64 << 10
ID_DIGITS_MAX = len(str(1 << ID_BITS))
REQUEST_TIMEOUT_S = 20.0
RETRY_S = 20.0

logger = logging.getLogger(__name__)


class ObjectMissing(CorruptLogFile):
    """The object does not exist. If a row in the database still refers to it, its records are lost."""


class ObjectExists(StoreUnavailable):
    """There is an object of this name with other bytes, and it stays. Put the new one under another id."""


class Backend(Protocol):
    """Named bytes. Every method raises StoreUnavailable when its retries are used up."""

    def write(self, name: str, parts: Sequence[Bytes], replace: bool = False) -> None:
        """Make the object durable, whole or not at all. Raises FileExistsError if there is one of this name, unless
        `replace`; a store that cannot check this replaces it.
        """

    def read(self, name: str, position: int, size: int) -> bytes:
        """The range; fewer bytes if the object is shorter. Raises FileNotFoundError."""

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects; a missing one is not an error."""

    def names(self) -> Iterator[str]:
        """Every object; also what an interrupted `write` left, under the object's name."""


class ObjectCounters:
    """Totals since the start. Threads add to them."""

    def __init__(self) -> None:
        self.puts = 0
        self.put_bytes = 0
        self.put_times = Histogram()
        self.gets = 0
        self.get_bytes = 0
        self.get_times = Histogram()
        self.failures = 0
        """Requests that raised an error after all retries."""
        self._lock = threading.Lock()

    def add_put(self, size_bytes: int, seconds: float) -> None:
        with self._lock:
            self.puts += 1
            self.put_bytes += size_bytes
            self.put_times.add(seconds)

    def add_get(self, size_bytes: int, seconds: float) -> None:
        with self._lock:
            self.gets += 1
            self.get_bytes += size_bytes
            self.get_times.add(seconds)

    def add_failure(self) -> None:
        with self._lock:
            self.failures += 1


class Objects:
    """The objects of one cluster, by the ids that `Engine.claim` returned."""

    def __init__(self, backend: Backend, place: str) -> None:
        self._backend = backend
        self.place = place
        """For messages."""
        self.counters = ObjectCounters()

    def check(self) -> tuple[float, float]:
        """Write, read, list and delete a small object, to find a wrong setting before the first record.

        Returns the seconds of the write and of the read. Raises StoreUnavailable with the reason, for example refused
        credentials.
        """
        name = f"check/{secrets.token_hex(8)}"
        began = time.monotonic()
        self._backend.write(name, [CHECKED])
        written = time.monotonic()
        try:
            found = self._backend.read(name, 0, len(CHECKED))
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{self.place}/{name} was written, but it does not exist") from error
        read = time.monotonic()
        if found != CHECKED:
            raise StoreUnavailable(f"{self.place}/{name} was written, but it has other bytes")
        if next(self._backend.names(), None) is None:
            raise StoreUnavailable(f"{self.place}/{name} was written, but a list of {self.place} is empty")
        self._backend.remove([name])
        return written - began, read - written

    def probe(self) -> None:
        """Ask for an object that does not exist. Raises StoreUnavailable if the object store does not answer."""
        try:
            self._backend.read(ABSENT, 0, 1)
        except FileNotFoundError:
            return

    def put(self, object_id: int, parts: Sequence[Bytes]) -> None:
        """Write an object; it is durable on return. Raises StoreUnavailable, and ObjectExists.

        After an error the object may exist, or appear later. Other bytes need another id then.
        """
        begun = time.monotonic()
        try:
            self._create(object_name(object_id), parts)
        except StoreUnavailable:
            self.counters.add_failure()
            raise
        self.counters.add_put(sum(map(len, parts)), time.monotonic() - begun)

    def _create(self, name: str, parts: Sequence[Bytes]) -> None:
        try:
            self._backend.write(name, parts)
        except FileExistsError as error:
            # An earlier request of this put may have succeeded, and its answer was lost.
            data = b"".join(parts)
            try:
                found = self._backend.read(name, 0, len(data) + 1)
            except FileNotFoundError:
                found = None  # deleted meanwhile
            if found != data:
                why = "exists already and has other bytes: another database writes to this address"
                raise ObjectExists(f"{self.place}/{name} {why}") from error

    def get(self, object_id: int, position: int, size: int) -> bytes:
        """`size` bytes of an object from `position` on. Raises StoreUnavailable, ObjectMissing, and CorruptLogFile if
        the object is shorter.
        """
        name = object_name(object_id)
        begun = time.monotonic()
        try:
            data = self._backend.read(name, position, size)
        except FileNotFoundError as error:
            self.counters.add_failure()
            raise ObjectMissing(f"{self.place}/{name}", position, "the object does not exist") from error
        except StoreUnavailable:
            self.counters.add_failure()
            raise
        if len(data) != size:
            self.counters.add_failure()
            why = f"the object has {len(data)} bytes there, but the database names {size}"
            raise CorruptLogFile(f"{self.place}/{name}", position, why)
        self.counters.add_get(size, time.monotonic() - begun)
        return data

    def delete(self, object_ids: Collection[int]) -> None:
        names = [object_name(object_id) for object_id in sorted(object_ids)]
        for start in range(0, len(names), LIST_PAGE):
            self._backend.remove(names[start : start + LIST_PAGE])

    def read_note(self, name: str) -> bytes | None:
        """A small text beside the objects; None if there is none. Raises StoreUnavailable."""
        try:
            return self._backend.read(name, 0, NOTE_BYTES_MAX)
        except FileNotFoundError:
            return None

    def write_note(self, name: str, text: bytes, replace: bool) -> None:
        """Write a small text beside the objects; without `replace` only if there is none. Raises StoreUnavailable."""
        try:
            self._backend.write(name, [text], replace)
        except FileExistsError:
            logger.debug("%s/%s exists", self.place, name)

    def ids(self) -> Iterator[int]:
        """Every object of this cluster, in no order. Names that are not those of objects are skipped.

        Raises StoreUnavailable.
        """
        for name in self._backend.names():
            number = name.rpartition("/")[2]
            if not (number.isascii() and number.isdecimal() and len(number) <= ID_DIGITS_MAX):
                continue
            if int(number) < 1 << ID_BITS and name == object_name(int(number)):
                yield int(number)


def place_name(object_id: int) -> str:
    """Where a row's bytes are, for messages; 0 is a row that holds them itself."""
    return object_name(object_id) if object_id else "a row in the database"


def object_name(object_id: int) -> str:
    """The id, below two digits of its hash: object stores divide their load by the first characters of a name."""
    digest = hashlib.blake2b(object_id.to_bytes(8, "big"), digest_size=1).hexdigest()
    return f"{digest}/{object_id}"


def open_objects(
    url: str,
    cluster_id: str,
    options: Mapping[str, str] | None = None,
    *,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    retry_s: float = RETRY_S,
) -> Objects:
    """The objects of a cluster at `url`, in a folder with its id: clusters may share a bucket.

    `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` and `az://CONTAINER/PREFIX` need obstore (the extra `cluster`). It reads
    the usual variables of the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, ...), or asks the machine
    for the credentials of its role; it reads no files of the AWS command line. `options` has precedence, and has
    obstore's names: `endpoint`, `region`. `file:///DIRECTORY` is a directory that exists and that all brokers see.
    `memory://` holds everything in this process.

    A request to a bucket is given up after `request_timeout_s`. Failed ones are repeated for at most `retry_s` seconds.
    Raises ValueError if the URL or an option is wrong, and StoreUnavailable if the directory cannot be used.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc or options:
            raise ValueError(f"{url}: a directory is given as file:///DIRECTORY, without options")
        from fencepost.broker.cluster.objects.shared_directory import SharedDirectory

        directory = Path(unquote(parts.path)) / cluster_id
        return Objects(SharedDirectory(directory), str(directory))
    with needed_for(url, "cluster", ValueError):
        from fencepost.broker.cluster.objects.bucket import Bucket
    place = f"{url.rstrip('/')}/{cluster_id}"
    return Objects(Bucket.open(place, options or {}, request_timeout_s, retry_s), place)
