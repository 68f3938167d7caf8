"""The lag of groups in records, and new offsets for groups."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fencepost.client.admin.fetching import fetch
from fencepost.client.admin.parts import AdminParts
from fencepost.client.errors import KafkaError
from fencepost.protocol.batch_header import CorruptBatch, OversizedBatch, iter_headers
from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.records import decode_in_pieces, unpack_records
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.protocol.batch_header import BatchHeader

CHUNK_BYTES = 1 << 20
COUNT_BYTES = 32 << 20
"""The default number of bytes that one count of a group's lag may read."""


class PartitionLag(NamedTuple):
    """One partition of a group: its committed offset, the offsets of the log, and the lag in records.

    `committed` is None if the group reads the partition and has committed nothing. `records` counts the records that a
    read_committed consumer will get, without markers and aborted records; it is an upper bound if it is not `exact`,
    and None without a committed offset. `owner` is the id of the member that reads the partition.
    """

    partition: TopicPartition
    committed: int | None
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    records: int | None
    exact: bool
    owner: str | None

    @property
    def held_back(self) -> int:
        """Offsets between the last stable offset and the high watermark: an open transaction holds them back."""
        return self.high_watermark - self.last_stable_offset

    @property
    def lost(self) -> int:
        """Offsets that retention or DeleteRecords deleted before the group read them."""
        return 0 if self.committed is None else max(0, self.log_start_offset - self.committed)


class Reach(NamedTuple):
    """The log start offset, last stable offset and high watermark of a partition."""

    start: int
    stable: int
    high: int


async def reaches(admin: AdminParts, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Reach]:
    """Log start, last stable offset and high watermark of partitions. Raises KafkaError."""
    if not partitions:
        return {}
    start = await admin.offsets.list_offsets(partitions, at="earliest")
    stable = await admin.offsets.list_offsets(partitions)
    high = await admin.offsets.list_offsets(partitions, isolation="read_uncommitted")
    return {p: Reach(start[p].offset, stable[p].offset, high[p].offset) for p in partitions}


async def describe_group_lag(admin: AdminParts, group_id: str, *, count_bytes: int = COUNT_BYTES) -> list[PartitionLag]:
    """As `Admin.describe_group_lag`. Raises KafkaError.

    No index knows the aborted records, so it reads the batches, the partitions with the smallest lag first.
    `count_bytes` bounds that for the whole call; 0 reads nothing. The rest is counted by offsets.
    """
    owners = await _owners(admin, group_id)
    offsets = await admin.groups.list_group_offsets(group_id, require_stable=False)
    committed = {partition: one.offset for partition, one in offsets.items()}
    there = await existing(admin, {*committed, *owners})
    reach = await reaches(admin, there)
    found: dict[TopicPartition, PartitionLag] = {}
    left = count_bytes
    for partition in sorted(there, key=lambda p: (reach[p].stable - committed.get(p, reach[p].stable), p)):
        at, (start, stable, high) = committed.get(partition), reach[partition]
        records, exact = None, True
        if at is not None:
            records, used, exact = await count_visible(admin, partition, max(at, start), stable, left)
            left -= used
        found[partition] = PartitionLag(partition, at, start, stable, high, records, exact, owners.get(partition))
    return [found[partition] for partition in sorted(found)]


async def count_visible(
    admin: AdminParts, partition: TopicPartition, start: int, stop: int, count_bytes: int
) -> tuple[int, int, bool]:
    """Records from `start` up to `stop`, a last stable offset, that a read_committed reader gets; bytes read; whether
    it is exact.

    Reads at most about `count_bytes`; what is not read counts by its offsets. Raises KafkaError.
    """
    records, used, at = 0, 0, start
    while at < stop and used < count_bytes:
        part = await fetch(admin, partition, at, min(CHUNK_BYTES, count_bytes - used))
        data = part.records
        used += len(data)
        visible = AbortedFilter(part.aborted)
        before = at
        try:
            for position, header in iter_headers(data):
                if header.base_offset >= stop:
                    break
                if visible.admits(header, data, position) and header.next_offset > at:
                    records += _count(data, position, header, at, stop)
                at = max(at, header.next_offset)
        except CorruptBatch as wrong:
            raise KafkaError(f"{partition}: {wrong}", code=ErrorCode.CORRUPT_MESSAGE, api="Fetch") from wrong
        if at == before:  # the log was cut short meanwhile
            break
    return records + max(0, stop - at), used, at >= stop


def _count(data: bytes, position: int, header: "BatchHeader", start: int, stop: int) -> int:
    """How many of a batch's records are within the range; it decodes them only if compaction left gaps.

    For a batch that decompresses to more than 128 MiB it is the most that can be there.
    """
    if header.base_offset >= start and header.next_offset <= stop:
        return header.record_count
    if header.record_count == header.last_offset_delta + 1:
        return min(header.next_offset, stop) - max(header.base_offset, start)
    try:
        unpacked = unpack_records(data, position, header, DEFAULT_LIMIT_BYTES)
    except OversizedBatch:
        return min(header.record_count, min(header.next_offset, stop) - max(header.base_offset, start))
    return sum(start <= record.offset < stop for records in decode_in_pieces(unpacked, header) for record in records)


async def existing(admin: AdminParts, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    topics = await admin.topics.describe_topics()
    return [p for p in sorted(partitions) if p.topic in topics and p.partition < len(topics[p.topic].partitions)]


async def _owners(admin: AdminParts, group_id: str) -> dict[TopicPartition, str]:
    described = await admin.groups.describe_groups(group_id)
    return {partition: member.member_id for member in described[group_id].members for partition in member.partitions}


class Move(NamedTuple):
    """A group's new offset in one partition; `remark` says why it is not exactly the requested one."""

    partition: TopicPartition
    before: int | None
    after: int
    remark: str


async def moves(
    admin: AdminParts,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    way: str,
    value: int,
) -> list[Move]:
    """The new offsets of a group, not committed yet; never below the log start or above the last stable offset.

    `way` is to_earliest, to_latest, to_offset, shift_by, to_datetime (`value` in ms since 1970) or by_duration (in ms).
    Raises KafkaError, also if `shift_by` finds no committed offset.
    """
    reach = await reaches(admin, partitions)
    timed: dict[TopicPartition, int] = {}
    if way in ("to_datetime", "by_duration"):
        at_ms = max(0, value if way == "to_datetime" else admin.now_ms() - value)  # below it are codes, such as LATEST
        timed = {p: info.offset for p, info in (await admin.offsets.list_offsets(partitions, at=at_ms)).items()}
    found = []
    for partition in sorted(partitions):
        start, stable, _ = reach[partition]
        before = committed.get(partition)
        remark = ""
        match way:
            case "to_earliest":
                wanted = start
            case "to_latest":
                wanted = stable
            case "to_offset":
                wanted = value
            case "shift_by":
                if before is None:
                    raise KafkaError(f"{partition}: the group has no committed offset to shift from")
                wanted = before + value
            case _:
                wanted = timed[partition]
                if wanted < 0:
                    wanted, remark = stable, "no visible record is that late"
        after = min(max(wanted, start), stable)
        if after != wanted:
            remark = "the log begins there" if after > wanted else "the last stable offset"
        found.append(Move(partition, before, after, remark))
    return found
