"""The audit: who was fenced and why, what this console changed, the access rules, and the counts of a partition."""

from typing import Any, Final

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fencepost.client import KafkaError
from fencepost.client.admin.fetching import fetch
from fencepost.client.admin.lag import reaches
from fencepost.client.admin.last_stable_offset import check_exists
from fencepost.client.admin.plan_types import shown_rule
from fencepost.console.counting import Count
from fencepost.console.errors import described
from fencepost.console.numbers import whole_number
from fencepost.console.partition_log import headers_of
from fencepost.console.state import connection_of, console_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition

IDS_MAX: Final = 300
"""The history of at most this many transactional ids is requested."""
EVENTS_MAX: Final = 100
STEP_BYTES: Final = 256 << 10
COUNT_BYTES: Final = 64 << 20
"""One count reads at most this many bytes; the page offers to go on."""


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """Refusals and fences of all transactional ids, actions of this console, access rules."""
    connection, console = connection_of(request), console_of(request)
    values: dict[str, Any] = {"events": [], "rules": None, "why_no_rules": None, "ids_left_out": 0}
    listed = await connection.admin.list_transactions()
    some = [one.transactional_id for one in listed[:IDS_MAX]]
    values["ids_left_out"] = max(0, len(listed) - IDS_MAX)
    found = await connection.parts.transactions.describe_briefly(some)
    events = [
        (line.last_ms, one.transactional_id, line)
        for one in found.values()
        if one.history is not None
        for line in one.history.lines
    ]
    events.sort(key=lambda event: -event[0])
    values["events"] = events[:EVENTS_MAX]
    values["has_history"] = any(one.history is not None for one in found.values()) or not found
    try:
        values["rules"] = [shown_rule(rule) for rule in await connection.admin.describe_acls()]
    except KafkaError as error:
        values["why_no_rules"] = (
            "The broker runs without an authorizer: every client may do everything."
            if error.code is ErrorCode.SECURITY_DISABLED
            else described(error).title
        )
    # With logins, each user sees the own actions only.
    user = request.state.session.user
    values["actions"] = [one for one in console.actions if user is None or one.user == user]
    return "audit.html", values


async def count_body(request: Request) -> tuple[str, dict[str, Any]]:
    """Counts of a partition's log from an offset on."""
    topic = request.query_params.get("topic", "").strip()
    number = whole_number(request.query_params.get("partition", "0"))
    start = whole_number(request.query_params.get("from", "").strip() or "0")
    if not topic or number is None or start is None:
        raise HTTPException(404, "Name a topic, a partition, and perhaps an offset.")
    place, parts = TopicPartition(topic, number), connection_of(request).parts
    await check_exists(parts, place)
    reach = (await reaches(parts, [place]))[place]
    first = at = max(reach.start, start)
    count, used = Count(), 0
    while at < reach.high and used < COUNT_BYTES:
        part = await fetch(parts, place, at, STEP_BYTES, isolation=IsolationLevel.READ_UNCOMMITTED)
        read = [one for one in headers_of(part.records, place) if at <= one[0].last_offset < reach.high]
        if not read:
            break
        count.take(read)
        at = read[-1][0].next_offset
        used += len(part.records)
        await trio.lowlevel.checkpoint()
    return "count.html", {
        "place": place,
        "reach": reach,
        "first": first,
        "next_offset": at,
        "used": used,
        "counts": count.result(),
    }
