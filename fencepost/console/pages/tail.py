"""The live tail: the newest records of a topic, with a switch for the isolation level."""

import codecs
from collections.abc import Mapping
from typing import Any, Final

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fencepost.client import KafkaError
from fencepost.client.admin import Admin
from fencepost.client.admin.client import parts_of
from fencepost.client.admin.fetching import Fetched, fetch_once
from fencepost.client.admin.lag import Reach, reaches
from fencepost.client.admin.parts import AdminParts
from fencepost.console.errors import OUTAGE, described
from fencepost.console.events import Emit
from fencepost.console.numbers import whole_number
from fencepost.console.state import connection_of, open_stream, render
from fencepost.protocol.batch_header import CorruptBatch, UnreadableBatch, iter_headers
from fencepost.protocol.control_records import control_type
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.records import Record, decode_unpacked, unpack_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

PARTITIONS_MAX: Final = 100
STEP_SECONDS: Final = 0.5
STEP_BYTES: Final = 256 << 10
PARTITION_BYTES: Final = 32 << 10
RECORDS: Final = 100
"""A tail is a sample for people: what does not fit in a step is skipped, and counted."""
LEAST_RECORDS: Final = 5
"""Of each partition, however many have records in a step."""
BATCH_RECORDS_MAX: Final = 20_000
BATCH_BYTES_MAX: Final = 4 << 20
"""A larger batch would keep the broker's event loop, if the console is in its process."""
BEFORE: Final = 10
"""How many offsets before the end a tail begins in each partition."""
VALUE_CHARACTERS: Final = 2000
LEVELS = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}


async def show(request: Request) -> Response:
    """The page; its records come from `stream`."""
    name = request.path_params["topic"]
    topic = (await connection_of(request).admin.describe_topics(name))[name]
    level = _level(request)
    return render(request, "tail.html", {"topic": topic, "isolation": level, "partition": _number(request)})


async def stream(request: Request) -> Response:
    """Records as events, a list of them in each."""
    name, level, number = request.path_params["topic"], LEVELS[_level(request)], _number(request)
    try:
        await _places(connection_of(request).admin, name, number)
    except KafkaError as error:
        if described(error).status != OUTAGE:  # browsers do not ask again; an outage may end
            raise

    async def work(emit: Emit) -> None:
        async with connection_of(request).kafka.admin() as admin:
            tail: Tail | None = None
            troubled = False
            while True:
                try:
                    if tail is None:
                        beginning = Tail(parts_of(admin), level, await _places(admin, name, number))
                        await beginning.begin()
                        tail = beginning
                        await emit("records", {"records": [], "skipped": 0})  # the page reads on from here
                    records, skipped = await tail.step()
                    if records or skipped:
                        await emit("records", {"records": records, "skipped": skipped})
                    if tail.trouble is not None:
                        raise tail.trouble
                    if troubled:  # this event shows that it is over
                        await emit("records", {"records": [], "skipped": 0})
                    troubled = False
                except KafkaError as error:  # the positions stay: nothing comes twice
                    troubled = True
                    await emit("trouble", described(error).title)
                    await trio.sleep(2)
                await trio.sleep(STEP_SECONDS)

    return open_stream(request, work)


async def _places(admin: Admin, topic: str, number: int | None) -> list[TopicPartition]:
    """The partitions of a tail: this one, or all. Raises KafkaError, and HTTPException if there is no such one."""
    count = len((await admin.describe_topics(topic))[topic].partitions)
    places = [TopicPartition(topic, one) for one in range(count) if number in (None, one)][:PARTITIONS_MAX]
    if not places:
        raise HTTPException(404, "The topic has no such partition.")
    return places


class Tail:
    """Positions in partitions, and the steps that read on from them."""

    def __init__(self, admin: AdminParts, level: IsolationLevel, places: list[TopicPartition]) -> None:
        self._admin = admin
        self._level = level
        self._places = places
        self.positions: dict[TopicPartition, int] = {}
        self.trouble: KafkaError | None = None
        """Why the last step could not read some of the partitions."""
        self._turn = 0

    async def begin(self) -> None:
        """Go to a few offsets before the end of each partition that has a leader, and has not begun yet.

        Raises KafkaError.
        """
        led = []
        for place in self._places:
            if place not in self.positions:
                try:
                    await self._admin.cluster.leader_of(place)
                    led.append(place)
                except KafkaError as error:
                    self.trouble = error
        self.positions |= await self._ends(led)

    async def _ends(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = await reaches(self._admin, places)
        return {place: max(reach.start, self._end(reach) - BEFORE) for place, reach in found.items()}

    async def step(self) -> tuple[list[dict[str, Any]], int]:
        """The records since the last step, oldest first, and how many offsets were skipped. Raises KafkaError."""
        self.trouble = None
        if len(self.positions) < len(self._places):
            await self.begin()
        places = list(self.positions)
        self._turn = (self._turn + 1) % max(1, len(places))  # the first of a fetch gets most
        in_turn = {place: self.positions[place] for place in places[self._turn :] + places[: self._turn]}
        parts, errors = await fetch_once(
            self._admin, in_turn, STEP_BYTES, PARTITION_BYTES, isolation=self._level, wait_ms=0
        )
        records: list[dict[str, Any]] = []
        skipped = 0
        busy = sum(bool(part.records) for part in parts.values())
        limit = max(LEAST_RECORDS, RECORDS // max(1, busy))
        for place, part in parts.items():
            await trio.lowlevel.checkpoint()
            some, position, left_out = shown(
                place, part, self.positions[place], self._level is IsolationLevel.READ_UNCOMMITTED, limit
            )
            records += some
            skipped += left_out
            end = self._end(Reach(part.log_start_offset, part.last_stable_offset, part.high_watermark))
            if position < end - BEFORE and len(part.records) >= PARTITION_BYTES // 2:
                skipped += end - BEFORE - position
                position = end - BEFORE
            self.positions[place] = position
        for place, error in errors.items():
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:  # retention deleted the records, or a new leader lacks them
                self.positions |= await self._ends([place])
            else:
                self.trouble = error
        return merged(records), skipped

    def _end(self, reach: Reach) -> int:
        return reach.stable if self._level is IsolationLevel.READ_COMMITTED else reach.high


def merged(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of some partitions by time; those of each partition stay in the order of the log.

    The times are their producers', and that of a marker is later than that of a record which waited for the marker.
    """
    latest: dict[int, int] = {}
    keys = []
    for position, one in enumerate(records):
        time = latest[one["partition"]] = max(one["time"], latest.get(one["partition"], -1))
        keys.append((time, one["partition"], position))
    return [records[position] for _, _, position in sorted(keys)]


def shown(
    place: TopicPartition, part: Fetched, start: int, with_markers: bool, limit: int
) -> tuple[list[dict[str, Any]], int, int]:
    """The records of the last `limit` offsets from `start` on as the page shows them, the offset after them, and how
    many offsets were left out.
    """
    visible = AbortedFilter(part.aborted)
    found: list[dict[str, Any]] = []
    position = start
    first = start
    try:
        batches = list(iter_headers(part.records))
        if batches:
            first = max(start, batches[-1][1].next_offset - limit)
        for at, header in batches:
            position = max(position, header.next_offset)
            is_visible = visible.admits(header, part.records, at)
            if header.next_offset <= first:
                continue
            facts = {
                "partition": place.partition,
                "producer": str(header.producer_id) if header.producer_id >= 0 else None,
                "transactional": header.is_transactional,
            }
            if not is_visible:
                if header.is_control and with_markers:
                    kind = control_type(part.records, at, header) if header.record_count else None
                    name = "control" if kind is None else kind.name
                    found.append({**facts, "offset": header.base_offset, "time": header.max_timestamp, "marker": name})
                continue
            try:
                if header.record_count > BATCH_RECORDS_MAX:
                    raise UnreadableBatch(f"a batch of {header.record_count} records is not unpacked here")
                unpacked = unpack_records(part.records, at, header, BATCH_BYTES_MAX)
                rows = [_row(record) for record in decode_unpacked(unpacked, header) if record.offset >= first]
            except UnreadableBatch as error:
                rows = [{"offset": header.base_offset, "time": header.max_timestamp, "marker": f"not shown: {error}"}]
            found += [{**facts, **row} for row in rows]
    except CorruptBatch as error:
        row = {"offset": position, "time": -1, "marker": f"unreadable: {error}"}
        found.append({"partition": place.partition, "producer": None, "transactional": False, **row})
        position = max(position + 1, part.last_stable_offset)
    return found, position, first - start


def _row(record: Record) -> Mapping[str, Any]:
    return {
        "offset": record.offset,
        "time": record.timestamp_ms,
        "marker": None,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(value: bytes | None) -> dict[str, Any]:
    """Bytes as text if they are UTF-8, otherwise as hexadecimal digits; long values are cut."""
    if value is None:
        return {"text": None, "form": "null", "size": 0}
    cut = value[: VALUE_CHARACTERS * 4]
    try:
        text, form = codecs.getincrementaldecoder("utf-8")().decode(cut, len(cut) == len(value)), "text"
    except UnicodeDecodeError:
        text, form = cut.hex(" "), "hex"
    return {"text": text[:VALUE_CHARACTERS], "form": form, "size": len(value)}


def _level(request: Request) -> str:
    level = request.query_params.get("isolation", "read_committed")
    if level not in LEVELS:
        raise HTTPException(404)
    return level


def _number(request: Request) -> int | None:
    text = request.query_params.get("partition", "")
    number = whole_number(text)
    if text and number is None:
        raise HTTPException(404)
    return number
