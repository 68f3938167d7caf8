"""Share groups as queues: how much each partition has to do, who holds what, and why a record does not move."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from fencepost.client.admin.fetching import fetch
from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.lag import Reach, existing, reaches
from fencepost.client.admin.parts import AdminParts
from fencepost.client.admin.share_types import RecordRange, RecordStates, ShareGroupOffset
from fencepost.client.admin.types import ConfigEntry, GroupDescription, GroupListing
from fencepost.client.errors import KafkaError
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.batch_header import CorruptBatch, OversizedBatch, iter_headers
from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_in_pieces, unpack_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

IN_FLIGHT_MAX: Final = "share.partition.max.record.locks"
ISOLATION: Final = "share.isolation.level"
NEW: Final = "new"
OLDEST_LOOKUPS: Final = 100
"""For how many partitions the first record is read, to know its age."""
_HIDDEN = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_GONE = _HIDDEN | {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE}


class QueuePartition(NamedTuple):
    """A share partition beside its log; `oldest_ms` is the timestamp of the first record that is not done."""

    partition: TopicPartition
    offset: ShareGroupOffset
    reach: Reach
    oldest_ms: int | None

    @property
    def start_offset(self) -> int | None:
        """The first offset that is not done, as the leader has it, else as it is stored."""
        return self.offset.start_offset if self.offset.states is None else self.offset.states.start_offset

    @property
    def counts(self) -> Counter[str]:
        """How many offsets are in each state, from the start offset to the last one in flight."""
        return counted_states(self.offset.states)


class QueueLine(NamedTuple):
    """A share group in a list; the numbers are None if the user may not see them, or a broker does not know them."""

    group_id: str
    state: str
    members: int | None
    partitions: int | None
    depth: int | None


class Queue(NamedTuple):
    """A share group with its partitions, and the settings of its own."""

    group: GroupDescription
    partitions: tuple[QueuePartition, ...]
    settings: Mapping[str, str]

    @property
    def depth(self) -> int | None:
        """The sum of all lags; None if one is not known."""
        return depth_of([one.offset for one in self.partitions])

    @property
    def held(self) -> Counter[str]:
        """How many records each member holds."""
        found = Counter[str]()
        for one in _ranges(self.partitions):
            if one.member_id is not None:
                found[one.member_id] += one.size
        return found

    @property
    def deliveries(self) -> Counter[int]:
        """How many records that are not done were delivered how often: those of fencepost brokers only."""
        found = Counter[int]()
        for one in _ranges(self.partitions):
            if one.state in ("available", "acquired", "pending"):
                found[one.delivery_count] += one.size
        return found


class Why(NamedTuple):
    """What has become of a record; `state` is one word for programs, `text` a sentence."""

    state: str
    text: str
    record: RecordRange | None = None


def depth_of(offsets: Iterable[ShareGroupOffset]) -> int | None:
    """The sum of the lags; None if one is not known."""
    lags = [one.lag for one in offsets]
    return None if None in lags else sum(lag or 0 for lag in lags)


def counted_states(states: RecordStates | None) -> Counter[str]:
    """How many offsets are in each state; NEW for available ones that were never delivered."""
    found = Counter[str]()
    for one in () if states is None else states.whole():
        found[NEW if one.is_new else one.state] += one.size
    return found


async def list_queues(admin: AdminParts, listed: Collection[GroupListing]) -> list[QueueLine]:
    """These share groups with their depth: two requests for each coordinator and group. Raises KafkaError."""
    described: Mapping[str, GroupDescription]
    try:
        described = await admin.share_groups.describe_share_groups(one.group_id for one in listed)
    except ItemsFailedError as failed:
        described = failed.results
    found = []
    for one in listed:
        group = described.get(one.group_id)
        if group is None:
            found.append(QueueLine(one.group_id, one.state, None, None, None))
            continue
        offsets = await admin.share_groups.list_share_group_offsets(one.group_id)
        depth = depth_of(offsets.values())
        found.append(QueueLine(one.group_id, group.state, len(group.members), len(offsets), depth))
    return found


async def describe_queue(admin: AdminParts, group_id: str) -> Queue:
    """A share group with all that brokers report about its records. Raises KafkaError (GROUP_ID_NOT_FOUND, ...)."""
    group = await known_share_group(admin, group_id)
    offsets = await admin.share_groups.list_share_group_offsets(group_id, explain=True)
    there = await existing(admin, offsets)
    reach = await reaches(admin, there)
    partitions = []
    for number, partition in enumerate(there):
        one = QueuePartition(partition, offsets[partition], reach[partition], None)
        partitions.append(one._replace(oldest_ms=await _oldest(admin, one)) if number < OLDEST_LOOKUPS else one)
    entries = await group_settings(admin, group_id)
    own = {
        name: entry.value or "" for name, entry in entries.items() if entry.source is ConfigSource.DYNAMIC_GROUP_CONFIG
    }
    return Queue(group, tuple(partitions), own)


async def known_share_group(admin: AdminParts, group_id: str) -> GroupDescription:
    """The group. Raises its error as KafkaError: GROUP_ID_NOT_FOUND also for a group of another type."""
    try:
        return (await admin.share_groups.describe_share_groups(group_id))[group_id]
    except ItemsFailedError as failed:
        raise failed.errors[group_id] from None


async def group_settings(admin: AdminParts, group_id: str) -> Mapping[str, ConfigEntry]:
    """The settings of a group; none if the user may not see them. Raises KafkaError."""
    try:
        return await admin.configs.describe_configs(group=group_id)
    except KafkaError as error:
        if error.code not in _HIDDEN:
            raise
        return {}


async def why_record(admin: AdminParts, group_id: str, partition: TopicPartition, offset: int) -> Why:
    """Why a share group's record does not move. Raises KafkaError (GROUP_ID_NOT_FOUND, ...)."""
    group = await known_share_group(admin, group_id)
    reach = (await reaches(admin, [partition]))[partition]
    found = await admin.share_groups.list_share_group_offsets(group_id, partition, explain=True)
    settings = await group_settings(admin, group_id)
    return explain_record(offset, found[partition], reach, group, settings)


def explain_record(
    offset: int,
    at: ShareGroupOffset,
    reach: Reach,
    group: GroupDescription,
    settings: Mapping[str, ConfigEntry],
) -> Why:
    """What has become of the record at an offset, from what brokers report."""
    states = at.states
    start = at.start_offset if states is None else states.start_offset
    if offset >= reach.high:
        return Why("not written", f"The log ends at {reach.high}: there is no record yet.")
    if start is None:
        return Why("not begun", "The group has not begun to read this partition. Its first member's fetch begins it.")
    if offset < reach.start:
        return Why("deleted", f"The log begins at {reach.start}: retention or DeleteRecords deleted the record.")
    if offset < start:
        return Why(
            "done",
            f"The group's start offset is {start}: the record was accepted or archived, or the group began later.",
        )
    if states is None:
        return Why(
            "unknown",
            f"It is at or after the start offset {start}. The partition's leader does not answer, or is Apache Kafka,"
            " which reports no more about records.",
        )
    record = states.at(offset)
    if record is not None:
        return _known(record, group)
    return _never_acquired(offset, states, reach, group, settings)


def _known(record: RecordRange, group: GroupDescription) -> Why:
    times = "once" if record.delivery_count == 1 else f"{record.delivery_count} times"
    match record.state:
        case "acquired":
            clients = {
                member.member_id: f"{member.client_id} at {member.client_host.lstrip('/')}" for member in group.members
            }
            name = clients.get(record.member_id or "", "no member of the group any more")
            ends = "" if record.lock_ms is None else f" Its lock ends in {record.lock_ms / 1000:.1f} s."
            text = f"Member {record.member_id} ({name}) holds it, delivered {times}.{ends}"
        case "acknowledged":
            text = "A member accepted it. The start offset passes it when all records before it are done."
        case "archiving":
            text = "It was given up, and is on its way to the dead-letter topic."
        case "archived":
            text = (
                f"It was given up after {record.delivery_count} deliveries: a member rejected it, the deliveries"
                " reached the limit, its transaction was aborted, or the log does not have it any more."
            )
        case "pending":
            text = (
                f"It was acknowledged in a transaction of producer {record.producer_id}, which is still open: its"
                " commit makes that count, and its abort makes the record available again."
            )
        case "available":
            before = f"It was delivered {times}, and released." if record.delivery_count else "It was never delivered."
            if record.lock_ms is not None:
                return Why(
                    "held back", f"{before} No member gets it in the next {record.lock_ms / 1000:.1f} s.", record
                )
            text = f"{before} {_next(group)}"
        case other:
            text = f"Its state is {other!r}, which this version does not know."
    return Why(record.state, text, record)


def _never_acquired(
    offset: int, states: RecordStates, reach: Reach, group: GroupDescription, settings: Mapping[str, ConfigEntry]
) -> Why:
    if not states.complete and offset < states.next_offset:
        return Why("unknown", "The group has more records in flight than one response shows.")
    isolation, most = settings.get(ISOLATION), settings.get(IN_FLIGHT_MAX)
    if offset >= reach.stable and isolation is not None and isolation.value == "read_committed":
        return Why(
            "in an open transaction",
            f"The group reads committed records only, and the last stable offset is {reach.stable}:"
            " an open transaction holds it back.",
        )
    if most is not None and most.value is not None and offset >= states.start_offset + int(most.value):
        return Why(
            "beyond the limit",
            f"At most {most.value} offsets from the start offset on may be in flight ({IN_FLIGHT_MAX}):"
            f" the record at {states.start_offset} has to be done first.",
        )
    return Why("available", f"It was never delivered. {_next(group)}")


def _next(group: GroupDescription) -> str:
    if not group.members:
        return "The group has no members: start one."
    return "The next fetch of a member may get it: members that are busy do not fetch."


async def _oldest(admin: AdminParts, one: QueuePartition) -> int | None:
    """The timestamp of the first record that is not done; None if there is none, or the user may not read it."""
    if one.start_offset is None:
        return None
    offset = max(one.start_offset, one.reach.start)
    if offset >= one.reach.high:
        return None
    try:
        part = await fetch(admin, one.partition, offset, 1, isolation=IsolationLevel.READ_UNCOMMITTED, wait_ms=0)
        return _timestamp(part.records, offset)
    except KafkaError as error:
        if error.code not in _GONE:
            raise
    except (CorruptBatch, OversizedBatch):
        return None
    return None


def _timestamp(data: bytes, offset: int) -> int | None:
    """The timestamp of the first record at or after an offset. Raises CorruptBatch and OversizedBatch."""
    for position, header in iter_headers(data):
        if header.next_offset <= offset:
            continue
        if header.timestamp_type:
            return header.max_timestamp
        unpacked = unpack_records(data, position, header, DEFAULT_LIMIT_BYTES)
        for records in decode_in_pieces(unpacked, header):
            for record in records:
                if record.offset >= offset:
                    return record.timestamp_ms if record.timestamp_ms >= 0 else None
    return None


def _ranges(partitions: Collection[QueuePartition]) -> list[RecordRange]:
    return [one for part in partitions if part.offset.states is not None for one in part.offset.states.whole()]
