"""Why readers make no progress: partitions that an open transaction holds back, the cause, and the remedy."""

from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.cli.plain_text import now_ms
from fencepost.cli.txn.text import holder_facts, remedy
from fencepost.client import KafkaError
from fencepost.client.admin import Verdict
from fencepost.client.admin.last_stable_offset import max_timeout_ms
from fencepost.console.guard import form_of
from fencepost.console.pages.transactions import identity_of
from fencepost.console.state import connection_of, console_of, record_action, render, session_of
from fencepost.protocol.admin_enums import OPEN_STATES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

DESCRIBED_MAX: Final = 200
"""The partitions of at most this many open transactions are requested."""


class Held(NamedTuple):
    """A partition whose last stable offset is behind its high watermark, and the ids with open transactions on it."""

    partition: TopicPartition
    stable: int
    high: int
    transactional_ids: tuple[str, ...]


async def list_body(request: Request) -> tuple[str, dict[str, Any]]:
    """The partitions of open transactions that are held back, those with the most offsets first."""
    connection = connection_of(request)
    listed = await connection.admin.list_transactions(states=OPEN_STATES)
    ids = [one.transactional_id for one in listed]
    described = await connection.parts.transactions.describe_briefly(ids[:DESCRIBED_MAX])
    names: dict[TopicPartition, list[str]] = {}
    for one in described.values():
        for partition in one.partitions:
            names.setdefault(partition, []).append(one.transactional_id)
    topics = await connection.admin.describe_topics(sorted({p.topic for p in names})) if names else {}
    leaders = {
        TopicPartition(topic.name, number): info.leader
        for topic in topics.values()
        for number, info in enumerate(topic.partitions)
    }
    there = [p for p in names if leaders.get(p, -1) >= 0]
    stable = await connection.admin.list_offsets(there) if there else {}
    high = await connection.admin.list_offsets(there, isolation="read_uncommitted") if there else {}
    held = [
        Held(p, stable[p].offset, high[p].offset, tuple(sorted(names[p])))
        for p in there
        if stable[p].offset < high[p].offset
    ]
    held.sort(key=lambda one: (one.stable - one.high, one.partition))
    return "stuck.html", {
        "held": held,
        "leaderless": sorted(p for p in names if leaders.get(p, 0) < 0),
        "left_out": max(0, len(ids) - DESCRIBED_MAX),
    }


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    """One partition: what holds it, which groups wait, and what to do."""
    return "why.html", await _values(request)


async def _values(request: Request) -> dict[str, Any]:
    place = TopicPartition(request.path_params["topic"], request.path_params["partition"])
    found = await connection_of(request).admin.describe_last_stable_offset(place)
    holder = found.holders[0] if found.holders else None
    now = now_ms()
    values: dict[str, Any] = {"found": found, "holder": holder, "facts": [], "sentence": "", "command": ""}
    if holder is not None:
        values["facts"] = holder_facts(holder, now)
        values["sentence"], values["command"] = remedy(found, holder, now, console_of(request).bootstrap)
    return {
        **values,
        "behind": found.high_watermark - found.last_stable_offset,
        "can_abort": holder is not None and holder.verdict in (Verdict.OPEN, Verdict.PREPARED),
        "can_repair": holder is not None and holder.verdict is Verdict.HANGING,
        "shown": "" if holder is None or holder.transaction is None else identity_of(holder.transaction),
        "refused": None,
    }


async def repair(request: Request) -> Response:
    """Abort a hanging transaction: write its ABORT marker past the coordinator, if it still hangs."""
    form = await form_of(request)
    values = await _values(request)
    place, holder = values["found"].partition, values["holder"]
    expected = f"{holder.producer.producer_id}:{holder.first_offset}" if holder is not None else None
    if form.get("sure") != "yes" or not values["can_repair"] or form.get("holder") != expected:
        refused = (
            "Nothing was done: tick the box to say that you are sure."
            if form.get("sure") != "yes"
            else "Nothing was done: that transaction does not hang here any more."
        )
        return render(request, "why.html", {**values, "refused": refused}, 409)
    try:
        await connection_of(request).admin.abort_transaction(place, holder.producer)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_TXN_STATE:
            raise
        refused = "Nothing was done: a coordinator owns the transaction, or it has ended."
        return render(request, "why.html", {**values, "refused": refused}, 409)
    held = f"{holder.producer.producer_id}:{holder.producer.producer_epoch}"
    record_action(request, f"aborted the hanging transaction of producer {held} on {place}")
    session_of(request).notice = f"The hanging transaction of producer {held} is aborted on {place}."
    return RedirectResponse(f"/stuck/{place.topic}/{place.partition}", 303)


async def hanging_body(request: Request) -> tuple[str, dict[str, Any]]:
    """All hanging transactions: asks the leaders of all partitions, so only when the user wants it."""
    connection = connection_of(request)
    found = await connection.admin.find_hanging_transactions()
    longest = await max_timeout_ms(connection.parts)
    return "hanging.html", {"found": found, "longest_seconds": longest / 1000}
