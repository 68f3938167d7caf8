"""A metadata log read by somebody who is not its broker: never written to, live or stopped, ours or Kafka's.

    reader = MetadataReader(Path("/data"))
    reader.image().topics_by_name            # the committed metadata, as of the log's end
    reader.image(1200)                       # as of offset 1200: the whole of what was decided below it
    for moment in reader.moments():          # what each transaction, or batch outside of one, did
        ...
    follower = reader.follow()               # then: follower.poll() -> what was decided since

What a transaction brought shows only behind its End, and nothing of an aborted or an open one ever does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fencepost.broker.log.scanning import batches
from fencepost.broker.log.store import END_MARK, CorruptLogFile
from fencepost.broker.log.verify.files import ReadSegment, file_names, segment_bases
from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.history import MetadataHistory, Moment
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage
from fencepost.coordinator.metadata.snapshot import SnapshotId, read_snapshot, snapshot_id
from fencepost.coordinator.metadata.topic_names import METADATA_TOPIC
from fencepost.protocol.metadata_records import MetadataEntry, MetadataRecordError, decode_metadata_records
from fencepost.protocol.record_batch import CorruptBatch, check_crc
from fencepost.protocol.records import decode_records

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
TRIES = 5
"""How often a reader begins anew because its files went while it read: the broker lets go of what a snapshot holds."""


class NoMetadataLog(Exception):
    """The directory holds no metadata log, or no longer what would be needed to say how it was at an offset."""


class LoggedBatch(NamedTuple):
    """One batch of the log: its records, or None for a control batch, which says nothing about metadata."""

    base_offset: int
    next_offset: int
    timestamp_ms: int
    entries: list[MetadataEntry] | None


class MetadataReader:
    """The metadata log in `directory`: a broker's data directory, or the log's own.

    Raises NoMetadataLog where there is none.
    """

    def __init__(self, directory: Path) -> None:
        own = directory / METADATA_DIRECTORY
        self.directory = own if own.is_dir() else directory
        try:
            names = file_names(self.directory)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoMetadataLog(f"{directory} is no directory") from error
        if not segment_bases(names) and not any(map(snapshot_id, names)):
            raise NoMetadataLog(f"{directory} holds no metadata log: there is no {METADATA_DIRECTORY} in it")

    def snapshots(self) -> list[SnapshotId]:
        """The snapshots there are, oldest first."""
        return sorted(found for name in file_names(self.directory) if (found := snapshot_id(name)) is not None)

    def first_offset(self) -> int:
        """From this offset on `image` and `moments` can say how it was."""
        bases, snapshots = segment_bases(file_names(self.directory)), self.snapshots()
        if bases and bases[0] == 0:
            return 0
        return snapshots[0].offset if snapshots else bases[0]

    def image(self, offset: int | None = None) -> MetadataImage:
        """The committed metadata: all that was decided below `offset`, or up to the log's end.

        Raises NoMetadataLog for an offset whose records are gone, MetadataCorrupt and OSError.
        """
        for _ in range(TRIES):
            try:
                follower = MetadataFollower(self, self._start(offset))
                follower.poll(offset)
            except FileNotFoundError:
                continue  # the broker has let go of a file since the directory was listed
            return follower.image
        raise NoMetadataLog(f"{self.directory} changes too quickly to be read")

    def moments(self, start: int | None = None, stop: int | None = None) -> Iterator[Moment]:
        """What was decided, or is still open, in order: whatever has a record from `start` on and below `stop`.

        An open transaction at the end comes last. Raises as `image`.
        """
        follower = MetadataFollower(self, self._start(start, exactly=True))
        for moment in follower.poll(stop):
            if start is None or moment.next_offset > start:
                yield moment
        pending = follower.pending()
        if pending is not None and (stop is None or pending.first_offset < stop):
            yield pending

    def follow(self, offset: int | None = None) -> "MetadataFollower":
        """Begin at `offset` (None: with the oldest there is), then `poll` again and again."""
        return MetadataFollower(self, self._start(offset, exactly=True))

    def _start(self, offset: int | None, exactly: bool = False) -> MetadataImage:
        """The image to begin with so as to come to `offset`: of the newest snapshot, or for history the oldest."""
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


class MetadataFollower:
    """Reads on from where it is, as often as it is asked."""

    def __init__(self, reader: MetadataReader, image: MetadataImage) -> None:
        self._reader = reader
        self._history = MetadataHistory(image)
        self._segment: int | None = None
        self._position = 0
        self.tail: str | None = None
        """What stands behind the last whole batch that was read, where that is neither the end nor reserved room: a
        batch that is being written, or damage. Look again to tell them apart."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        return self._history.image

    @property
    def next_offset(self) -> int:
        """The offset after the last record that was read."""
        return self._history.next_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here everything is decided."""
        return self._history.last_stable_offset

    def pending(self) -> Moment | None:
        """The open transaction as far as it was read."""
        return self._history.pending()

    def poll(self, stop: int | None = None) -> list[Moment]:
        """What was decided since the last call; with `stop` no batch that reaches beyond that offset is read.

        Raises NoMetadataLog where what should come next is gone, MetadataCorrupt for a record that makes no sense, and
        OSError.
        """
        moments: list[Moment] = []
        for batch in self._batches():
            if stop is not None and batch.next_offset > stop:
                break
            if batch.entries is None:
                self._history.pass_over(batch.base_offset, batch.next_offset)
            else:
                moments += self._history.take(batch.base_offset, batch.timestamp_ms, batch.entries)
        return moments

    def _batches(self) -> Iterator[LoggedBatch]:
        directory = self._reader.directory
        self.tail = None
        bases = segment_bases(file_names(directory))
        behind = [base for base in bases if base <= self.next_offset]
        if not behind:
            if not bases:
                return
            raise NoMetadataLog(f"{directory} goes back to offset {bases[0]} only")
        for base in [behind[-1], *(base for base in bases if base > self.next_offset)]:
            if base != self._segment:
                self._segment, self._position = base, 0
            segment = ReadSegment(directory, base)
            try:
                yield from self._segment_batches(segment)
            finally:
                segment.file.close()

    def _segment_batches(self, segment: ReadSegment) -> Iterator[LoggedBatch]:
        """The batches from where it is; ends before the first that is not whole."""
        position = self._position
        try:
            for position, header, data in batches(segment, self._position):
                if not check_crc(data, 0, header):
                    raise CorruptBatch("the batch does not match its CRC-32C")
                if header.next_offset > self.next_offset:
                    entries = None
                    if not header.is_control:
                        values = [record.value or b"" for record in decode_records(data, 0, header)]
                        entries = [*decode_metadata_records(values)]
                    yield LoggedBatch(header.base_offset, header.next_offset, header.max_timestamp, entries)
                self._position = position + header.size_bytes
        except MetadataRecordError as error:
            raise MetadataCorrupt(self.next_offset, str(error)) from error
        except (CorruptLogFile, CorruptBatch) as error:
            mark = segment.file.read(self._position, len(END_MARK))
            if mark.rstrip(b"\0") and mark != END_MARK:
                self.tail = f"{segment.file.place} at byte {self._position}: {error}"
