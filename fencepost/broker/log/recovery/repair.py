"""Verifies the indexes of a segment with its seal, and rebuilds those that differ.

Recovery scans a log from its newest snapshot on. It trusts the segments below: their batches because they were durable,
their indexes because a seal holds their checksums. The aborted index is verified before any read, because a wrong entry
would show aborted records as committed. The offset and time indexes are verified before their first search.
"""

import logging
from collections.abc import Mapping
from functools import partial

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.scanning import batches, replay
from fencepost.broker.log.recovery.seals import SEAL_BYTES, SEAL_SUFFIX, Seal, decode_seal
from fencepost.broker.log.recovery.snapshots import starting_points
from fencepost.broker.log.storage.segment import Segment, file_name
from fencepost.broker.log.storage.store import CorruptLogFile, Store
from fencepost.protocol.batch_header import check_crc

logger = logging.getLogger(__name__)


def need_no_hole(segment: Segment, end_offset: int, successor: int) -> None:
    """Raises CorruptLogFile if the segment ended at `end_offset` when it was closed, and the next begins later."""
    if end_offset < successor:
        why = f"a segment is missing: this one ends at offset {end_offset}, and the next one begins at {successor}"
        raise CorruptLogFile(segment.file.place, segment.size_bytes, why)


class Repairs:
    """Checks and repairs of the segments that recovery does not scan from their beginning."""

    def __init__(self, store: Store, names: Mapping[str, int], config: LogConfig, segments: list[Segment]) -> None:
        self._store = store
        self._names = names
        self._config = config
        self._segments = segments

    def trust(self, segment: Segment) -> None:
        """Accept a segment that is closed to appends. Without a seal it is read once completely, and sealed.

        Raises OSError, and CorruptLogFile if its batches are damaged.
        """
        seal = self.seal_of(segment)
        if seal is None or seal.end_offset != segment.next_offset:
            if seal is not None and seal.log_bytes == segment.size_bytes:
                need_no_hole(segment, seal.end_offset, segment.next_offset)
            self._remake(segment, indexes=True, aborted=True, sealed=False)
            return
        if seal.log_bytes != segment.size_bytes:
            why = (
                f"has {segment.size_bytes} bytes, but {seal.log_bytes} when it was closed; if another program wrote it"
            )
            raise CorruptLogFile(
                segment.file.place, min(seal.log_bytes, segment.size_bytes), f"{why}, delete its .seal"
            )
        segment.max_timestamp_ms, segment.max_timestamp_offset = seal.max_timestamp_ms, seal.max_timestamp_offset
        if not segment.aborted.is_as(seal.aborted):
            logger.warning("%s does not match its seal; rebuilding it from the batches", segment.aborted.file.place)
            # The segment gets a new seal, which must be right for the other indexes, too.
            indexed = segment.offsets.is_as(seal.offsets) and segment.times.is_as(seal.times)
            self._remake(segment, indexes=not indexed, aborted=True)
            return
        segment.offsets.prove = segment.times.prove = partial(self._prove, segment, seal)

    def seal_of(self, segment: Segment) -> Seal | None:
        """The segment's seal; None if it is missing or damaged. Raises OSError."""
        name = file_name(segment.base_offset, SEAL_SUFFIX)
        data = self._store.load(name)
        if data is None:
            logger.info("%s was never sealed and is read completely", segment.file.place)
            return None
        try:
            return decode_seal(data, f"{self._store.place}/{name}")
        except CorruptLogFile as error:
            logger.warning("damaged seal, the segment is read completely and sealed again: %s", error)
            return None

    def seal_is_torn(self, segment: Segment) -> bool:
        """Whether a power cut came before the seal was durable; a flipped bit looks different. Raises OSError."""
        data = self._store.load(file_name(segment.base_offset, SEAL_SUFFIX))
        return data is not None and (len(data) != SEAL_BYTES or not any(data))

    def _prove(self, segment: Segment, seal: Seal) -> None:
        """Before the first search: verify the offset and time indexes, or rebuild them. Raises as `trust`."""
        segment.offsets.prove = segment.times.prove = None
        for index, expected in ((segment.offsets, seal.offsets), (segment.times, seal.times)):
            if not index.is_as(expected):
                logger.warning("%s does not match its seal; rebuilding it from the batches", index.file.place)
                self._remake(segment, indexes=True, aborted=False)
                return

    def _remake(self, segment: Segment, *, indexes: bool, aborted: bool, sealed: bool = True) -> None:
        """Rebuild the indexes of a whole segment. Every batch is verified. Raises CorruptLogFile and OSError.

        `sealed`: a seal says that the next segment follows this one.
        """
        end_offset = segment.next_offset
        producers = self._producers_at(segment.base_offset) if aborted else None
        if indexes:
            segment.rewind(0, segment.base_offset, end_offset)
        if aborted:
            segment.aborted.truncate(0)
        last = segment.base_offset
        for at, header, data in batches(segment, 0):
            if not check_crc(data, 0, header):
                raise CorruptLogFile(segment.file.place, at, "the batch's CRC-32C does not match its bytes")
            last = header.next_offset
            if indexes:
                segment.note(at, header, header.base_offset, self._config.index_interval_bytes)
            if producers is not None and header.producer_id >= 0:
                ended = replay(producers, segment.file.place, at, header, data)
                if ended is not None:
                    segment.aborted.append(ended)
        if not (sealed or self._config.compacted):
            need_no_hole(segment, last, end_offset)
        segment.next_offset = end_offset
        segment.seal()

    def _producers_at(self, offset: int) -> ProducerStates:
        """The producers' state at the beginning of a segment, from the nearest snapshot below it."""
        start, producers = next(starting_points(self._store, self._names, offset))
        for segment in self._segments:
            if segment.base_offset >= offset or segment.next_offset <= start:
                continue
            for at, header, data in batches(segment, 0):
                if not check_crc(data, 0, header):
                    raise CorruptLogFile(segment.file.place, at, "the batch's CRC-32C does not match its bytes")
                if header.base_offset >= start and header.producer_id >= 0:
                    replay(producers, segment.file.place, at, header, data)
        return producers
