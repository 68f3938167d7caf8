"""Share groups: their depth, and for each partition a picture of what has become of its records."""

from typing import Any, Final, NamedTuple

from starlette.requests import Request

from fencepost.cli.connect import command_for
from fencepost.client.admin.queues import ISOLATION, Queue, QueuePartition, describe_queue, list_queues, why_record
from fencepost.console.numbers import whole_number
from fencepost.console.pages.topics import PAGE, page_number, pages
from fencepost.console.queue_picture import HEIGHT, WIDTH, Picture, picture
from fencepost.console.state import connection_of, console_of
from fencepost.protocol.topics import TopicPartition

PARTITIONS_MAX: Final = 50
"""How many partitions of a group are drawn: those with the most to do."""


class Drawn(NamedTuple):
    part: QueuePartition
    picture: Picture | None


async def list_body(request: Request) -> tuple[str, dict[str, Any]]:
    """A page of the share groups whose id contains the query."""
    wanted, connection = request.query_params.get("q", "").strip(), connection_of(request)
    found = [one for one in await connection.admin.list_groups(types="share") if wanted in one.group_id]
    number = page_number(request, len(found))
    shown = found[(number - 1) * PAGE : number * PAGE]
    lines = await list_queues(connection.parts, shown)
    last = pages(len(found))
    return "queues.html", {"queues": lines, "found": len(found), "q": wanted, "number": number, "last": last}


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """One share group; with a partition and an offset also why that record does not move."""
    group_id, connection = request.query_params.get("id", ""), connection_of(request)
    found = await describe_queue(connection.parts, group_id)
    deepest = sorted(found.partitions, key=lambda one: -(one.offset.lag or 0))[:PARTITIONS_MAX]
    committed = found.settings.get(ISOLATION) == "read_committed"
    place, offset = _record(request, found)
    held, members = found.held, {member.member_id for member in found.group.members}
    return "queue.html", {
        "queue": found,
        "drawn": [Drawn(one, picture(one, read_committed=committed)) for one in sorted(deepest)],
        "held": held,
        "former": {name: count for name, count in held.items() if name not in members},
        "left_out": len(found.partitions) - len(deepest),
        "read_committed": committed,
        "width": WIDTH,
        "height": HEIGHT,
        "place": place,
        "offset": offset,
        "why": None if place is None else await why_record(connection.parts, group_id, place, offset),
        "command": command_for(console_of(request).bootstrap, "queue", "describe", group_id),
    }


def _record(request: Request, queue: Queue) -> tuple[TopicPartition | None, int]:
    """The record that the query names, if the group reads its partition."""
    topic, _, number = request.query_params.get("place", "").rpartition(":")
    offset = whole_number(request.query_params.get("offset", ""))
    for one in queue.partitions:
        if offset is not None and (one.partition.topic, str(one.partition.partition)) == (topic, number):
            return one.partition, offset
    return None, 0
