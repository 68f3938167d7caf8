"""Reads a metadata log outside its broker: read-only, from a live or stopped broker, fencepost's or Kafka's.

    reader = MetadataReader(Path("/data"))
    reader.image().topics_by_name            # the committed metadata, as of the log's end
    reader.image(1200)                       # as of offset 1200: all that was decided below it
    for moment in reader.moments():          # the changes of each transaction, or of each batch outside of one
        ...
    follower = reader.follow()               # then: follower.poll() -> what was decided since
    newest = reader.follow_image()           # then: newest.poll(); newest.image -> as it is now

A transaction's changes become visible after its end record; those of an aborted or open one never do. `image` builds
one image for all records that it reads. `moments` and `follow` build one image for each step, so a long history costs
its length times the number of topics: use each moment as it comes, and do not keep them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from fencepost.broker.log.recovery.scanning import batches
from fencepost.broker.log.storage.store import END_MARK, CorruptLogFile
from fencepost.broker.log.verify.files import ReadSegment, file_names, segment_bases
from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.history import MetadataChange, MetadataHistory
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage
from fencepost.coordinator.metadata.ports import LoggedBatch
from fencepost.coordinator.metadata.snapshot import SnapshotId, read_snapshot, snapshot_id
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.batch_header import CorruptBatch, check_crc
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import METADATA_TOPIC

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
TRIES = 5
"""How often a reader starts again when the broker deletes a file during the read, because a snapshot replaces it."""


class NoMetadataLog(Exception):
    """The directory holds no metadata log, or no longer the records that an offset needs."""


class MetadataReader:
    """The metadata log in `directory`: a broker's data directory, or the log's own.

    Raises NoMetadataLog if there is none.
    """

    def __init__(self, directory: Path) -> None:
        own = directory / METADATA_DIRECTORY
        self.directory = own if own.is_dir() else directory
        try:
            names = file_names(self.directory)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoMetadataLog(f"{directory} is not a directory") from error
        if not segment_bases(names) and not any(map(snapshot_id, names)):
            raise NoMetadataLog(f"{directory} holds no metadata log: there is no {METADATA_DIRECTORY} in it")

    def snapshots(self) -> list[SnapshotId]:
        return sorted(found for name in file_names(self.directory) if (found := snapshot_id(name)) is not None)

    def first_offset(self) -> int:
        """The lowest offset for which `image` and `moments` have the records."""
        bases, snapshots = segment_bases(file_names(self.directory)), self.snapshots()
        if bases and bases[0] == 0:
            return 0
        return snapshots[0].offset if snapshots else bases[0]

    def image(self, offset: int | None = None) -> MetadataImage:
        """The committed metadata: all that was decided below `offset`, or up to the log's end.

        Raises NoMetadataLog for an offset whose records are deleted, MetadataCorrupt and OSError.
        """
        return self.follow_image(offset).image

    def moments(self, start: int | None = None, stop: int | None = None) -> Iterator[MetadataChange]:
        """The decided changes in order: every moment with a record from `start` on and below `stop`.

        An open transaction at the end comes last. Raises the errors of `image`.
        """
        follower = self.follow(start)
        for moment in follower.decided(stop):
            if start is None or moment.next_offset > start:
                yield moment
        pending = follower.pending()
        if pending is not None and (stop is None or pending.first_offset < stop):
            yield pending

    def follow(self, offset: int | None = None) -> "MetadataFollower":
        """Begin at `offset` (None: at the oldest record); call `poll` for the changes since."""
        return MetadataFollower(self, self._start(offset, exactly=True))

    def follow_image(self, offset: int | None = None) -> "ImageFollower":
        """Begin with the image of `offset`; call `poll` to update it. Raises the errors of `image`."""
        for _ in range(TRIES):
            try:
                follower = ImageFollower(self, self._start(offset))
                follower.poll(offset)
            except FileNotFoundError:
                continue  # the broker deleted a file after the directory was listed
            return follower
        raise NoMetadataLog(f"{self.directory} changes too fast to be read")

    def newest_snapshot(self) -> MetadataImage:
        """The image to begin with; EMPTY_IMAGE if the log has all. Raises as `image`."""
        return self._start(None)

    def _start(self, offset: int | None, exactly: bool = False) -> MetadataImage:
        """The image to begin with to reach `offset`: from the newest usable snapshot, or for history the oldest."""
        bases, snapshots = segment_bases(file_names(self.directory)), self.snapshots()
        if bases and bases[0] == 0 and (exactly or not snapshots):
            return EMPTY_IMAGE
        usable = [found for found in snapshots if offset is None or found.offset <= offset]
        usable.sort(reverse=not (exactly and offset is None))
        problem: MetadataCorrupt | None = None
        for found in usable:
            path = self.directory / found.file_name
            try:
                return read_snapshot(path.read_bytes(), found.offset, str(path)).image
            except MetadataCorrupt as error:
                problem = error
        if bases and bases[0] == 0:
            return EMPTY_IMAGE
        if problem is not None:
            raise problem
        raise NoMetadataLog(f"{self.directory} goes back to offset {self.first_offset()} only")


class LogPosition:
    """A reading position in the log of `directory`: `batches` continues from there."""

    def __init__(self, directory: Path, next_offset: int) -> None:
        self._directory = directory
        self._segment: int | None = None
        self._position = 0
        self.next_offset = next_offset
        """The offset after the last batch that was read."""
        self.tail: str | None = None
        """Set if bytes after the last whole batch are neither the log's end nor reserved space: a batch that is being
        written, or damage. A later call of `batches` tells which."""

    def batches(self, stop: int | None = None) -> Iterator[LoggedBatch]:
        """The batches from the position on, each once; ends before the first that reaches beyond `stop`.

        Raises NoMetadataLog if the next records are deleted, and OSError.
        """
        self.tail = None
        bases = segment_bases(file_names(self._directory))
        behind = [base for base in bases if base <= self.next_offset]
        if not behind:
            if not bases:
                return
            raise NoMetadataLog(f"{self._directory} goes back to offset {bases[0]} only")
        for base in [behind[-1], *(base for base in bases if base > self.next_offset)]:
            if stop is not None and base >= stop:
                return
            if base != self._segment:
                self._segment, self._position = base, 0
            segment = ReadSegment(self._directory, base)
            try:
                yield from self._segment_batches(segment, stop)
            finally:
                segment.file.close()

    def _segment_batches(self, segment: ReadSegment, stop: int | None) -> Iterator[LoggedBatch]:
        """The batches from the position on; ends before the first that is incomplete."""
        try:
            for position, header, data in batches(segment, self._position):
                if not check_crc(data, 0, header):
                    raise CorruptBatch("the batch does not match its CRC-32C")
                if stop is not None and header.next_offset > stop:
                    return
                if header.next_offset > self.next_offset:
                    values = None
                    if not header.is_control:
                        values = [record.value or b"" for record in decode_records(data, 0, header)]
                    self.next_offset = header.next_offset
                    yield LoggedBatch(header.base_offset, header.next_offset, header.max_timestamp, values)
                self._position = position + header.size_bytes
        except (CorruptLogFile, CorruptBatch) as error:
            mark = segment.file.read(self._position, len(END_MARK))
            if mark.rstrip(b"\0") and mark != END_MARK:
                self.tail = f"{segment.file.place} at byte {self._position}: {error}"


class _Folded(Protocol):
    """The state that batches are applied to."""

    @property
    def image(self) -> MetadataImage: ...
    def pass_over(self, base_offset: int, next_offset: int) -> object: ...


class LogFollower:
    """A reading position in the log, with the metadata at that position."""

    def __init__(self, reader: MetadataReader, folded: _Folded) -> None:
        self._log = LogPosition(reader.directory, folded.image.offset)
        self._folded = folded

    @property
    def image(self) -> MetadataImage:
        return self._folded.image

    @property
    def tail(self) -> str | None:
        return self._log.tail

    def _changes(self, stop: int | None) -> Iterator[tuple[LoggedBatch, list[MetadataEntry]]]:
        """The batches from here on that hold metadata; control batches are skipped."""
        for batch in self._log.batches(stop):
            if batch.values is None:
                self._folded.pass_over(batch.base_offset, batch.next_offset)
            else:
                yield batch, batch.entries()


class ImageFollower(LogFollower):
    """The committed metadata as of the log's end; each `poll` builds one image for all new records."""

    def __init__(self, reader: MetadataReader, image: MetadataImage) -> None:
        self._loader = MetadataLoader(image)
        super().__init__(reader, self._loader)

    def poll(self, stop: int | None = None) -> bool:
        """Read the new batches, with `stop` none that reaches beyond that offset. Returns whether the image changed.

        Raises the errors of `MetadataFollower.poll`; after an error the caller must create a new follower.
        """
        before = self._loader.image
        self._loader.holding = True
        for batch, entries in self._changes(stop):
            self._loader.load_batch(batch.base_offset, entries)
        return self._loader.release() is not before


class MetadataFollower(LogFollower):
    """Reads the new batches with each `poll`, and returns each decided step."""

    def __init__(self, reader: MetadataReader, image: MetadataImage) -> None:
        self._history = MetadataHistory(image)
        super().__init__(reader, self._history)

    @property
    def next_offset(self) -> int:
        return self._history.next_offset

    @property
    def last_stable_offset(self) -> int:
        """Every transaction below this offset is decided."""
        return self._history.last_stable_offset

    def pending(self) -> MetadataChange | None:
        return self._history.pending()

    def poll(self, stop: int | None = None) -> list[MetadataChange]:
        """What was decided since the last call; with `stop` no batch that reaches beyond that offset is read.

        Raises NoMetadataLog if the next records are deleted, MetadataCorrupt for an invalid record, and OSError.
        """
        return list(self.decided(stop))

    def decided(self, stop: int | None = None) -> Iterator[MetadataChange]:
        """Like `poll`, one by one: each moment holds its own images, so a long log's moments need much memory.

        The iterator reads a batch with its first moment. Consume all moments of a batch: the rest does not come again.
        """
        for batch, entries in self._changes(stop):
            yield from self._history.take(batch.base_offset, batch.timestamp_ms, entries)
