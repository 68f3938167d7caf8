"""The metadata log of core 0, as the other cores read it: in its directory, up to what is durable."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fencepost.broker.cores.layout import Layout
from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.metadata.reader import LogPosition, MetadataReader, NoMetadataLog
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.ports import LoggedBatch
from fencepost.coordinator.ports import LogSuperseded
from fencepost.protocol.errors import ErrorCode


class Settled:
    """A ticket for what another core has made durable."""

    is_durable = True

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset

    def request(self) -> None:
        """It is durable."""

    async def durable(self) -> None:
        """It is."""


class FollowedMetadata:
    """A `MetadataLog` that another core writes, and the `Snapshots` of that core."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._directory = layout.root / str(METADATA_PARTITION)
        self._position = LogPosition(self._directory, 0)
        self.snapshots = FollowedSnapshots(layout.root)

    @property
    def end_offset(self) -> int:
        return self._position.next_offset

    @property
    def newest(self) -> Settled:
        return Settled(self.end_offset)

    def append(self, values: Sequence[bytes], now_ms: int) -> Settled:
        raise LogSuperseded(ErrorCode.NOT_CONTROLLER, "core 0 writes the metadata")

    @contextmanager
    def in_one_commit(self) -> Iterator[bool]:
        yield False

    def read(self) -> Iterator[LoggedBatch]:
        """The new batches that are durable. Raises NoMetadataLog if they were deleted."""
        if self._directory.is_dir():
            yield from self._position.batches(self._layout.metadata_end)

    def seek(self, offset: int) -> None:
        self._position = LogPosition(self._directory, offset)


class FollowedSnapshots:
    """Snapshots that core 0 writes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def newest(self) -> MetadataImage | None:
        try:
            return MetadataReader(self._directory).newest_snapshot()
        except NoMetadataLog:
            return None  # core 0 has not begun yet

    async def write(self, image: MetadataImage) -> None:
        raise AssertionError("only the controller writes snapshots")
