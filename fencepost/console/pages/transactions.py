"""Transactions: the open ones as lanes on a time axis, one id with its history, and the abort of one."""

from collections import Counter
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.cli.connect import command_for
from fencepost.cli.plain_text import now_ms
from fencepost.cli.txn.text import client_of, open_for, times_out
from fencepost.client.admin import TransactionDescription
from fencepost.client.admin.last_stable_offset import NO_TIMEOUT_MS
from fencepost.console.guard import form_of
from fencepost.console.state import connection_of, console_of, record_action, render, session_of
from fencepost.protocol.admin_enums import OPEN_STATES

DESCRIBED_MAX: Final = 40
LISTED_MAX: Final = 200
LANE_WIDTH: Final = 600
"""Units of the picture's width."""
LEAST_SPAN_MS: Final = 60_000


class Lane(NamedTuple):
    """An open transaction as a bar: from its begin to now, and the moment when its timeout aborts it."""

    transaction: TransactionDescription
    open_for: str
    times_out: str
    client: str
    left: float
    width: float
    timeout_at: float | None
    events: tuple[tuple[float, str, str], ...]
    """Of its id: where on the axis, the reason, and the sentence."""


async def list_body(request: Request) -> tuple[str, dict[str, Any]]:
    """Counts by state, the open transactions as lanes, and the ids."""
    connection = connection_of(request)
    pattern = request.query_params.get("q", "").strip()
    listed = await connection.admin.list_transactions()
    found = [one for one in listed if pattern in one.transactional_id]
    is_open = [one.transactional_id for one in found if one.state in OPEN_STATES]
    described = await connection.parts.transactions.describe_briefly(is_open[:DESCRIBED_MAX])
    lanes = lanes_of(list(described.values()), now_ms())
    return "transactions.html", {
        "states": dict(sorted(Counter(one.state for one in listed).items())),
        "lanes": lanes,
        "span_ms": span_of([lane.transaction for lane in lanes], now_ms()),
        "width": LANE_WIDTH,
        "left_out": max(0, len(is_open) - DESCRIBED_MAX),
        "ids": found[:LISTED_MAX],
        "found": len(found),
        "q": pattern,
    }


def span_of(transactions: list[TransactionDescription], now: int) -> int:
    """How many ms the axis shows: back to the oldest begin, and at least a minute."""
    begins = [round(one.started.timestamp() * 1000) for one in transactions if one.started is not None]
    return max(LEAST_SPAN_MS, now - min(begins, default=now))


def lanes_of(transactions: list[TransactionDescription], now: int) -> list[Lane]:
    """The lanes, the oldest transaction first."""
    span = span_of(transactions, now)

    def x(time_ms: float) -> float:
        return round(LANE_WIDTH * (1 - (now - time_ms) / span), 1)

    lanes = []
    for one in sorted(transactions, key=lambda one: (one.started is None, one.started)):
        if one.started is None:
            continue
        began = one.started.timestamp() * 1000
        events = () if one.history is None else one.history.lines
        ends = began + one.timeout_ms
        lanes.append(
            Lane(
                one,
                open_for(one.started, now),
                times_out(one, now),
                client_of(one.history),
                x(began),
                max(2.0, round(LANE_WIDTH - x(began), 1)),
                x(ends) if one.timeout_ms != NO_TIMEOUT_MS and ends <= now else None,
                tuple((x(line.time_ms), line.reason, line.text) for line in events if now - line.time_ms <= span),
            )
        )
    return lanes


async def body(request: Request) -> tuple[str, dict[str, Any]]:
    return "transaction.html", await _values(request, request.query_params.get("id", ""))


async def _values(request: Request, transactional_id: str) -> dict[str, Any]:
    admin = connection_of(request).admin
    found = (await admin.describe_transactions(transactional_id))[transactional_id]
    now = now_ms()
    return {
        "transaction": found,
        "open_for": open_for(found.started, now),
        "times_out": times_out(found, now),
        "client": client_of(found.history),
        "two_phase": found.timeout_ms == NO_TIMEOUT_MS,
        "command": command_for(
            console_of(request).bootstrap,
            *("txn", "abort", transactional_id),
            *(["--even-two-phase"] if found.timeout_ms == NO_TIMEOUT_MS else []),
        ),
        "shown": identity_of(found),
        "refused": None,
    }


def identity_of(transaction: TransactionDescription) -> str:
    """What says that a transaction is still the one that a page has shown."""
    started = None if transaction.started is None else round(transaction.started.timestamp() * 1000)
    producer = f"{transaction.producer_id}:{transaction.producer_epoch}"
    return f"{producer}:{started}:{transaction.timeout_ms}"


async def abort(request: Request) -> Response:
    """Abort the open transaction of an id and fence its producer, after the box was ticked."""
    form = await form_of(request)
    transactional_id = str(form.get("id", ""))
    values = await _values(request, transactional_id)
    found: TransactionDescription = values["transaction"]
    if form.get("sure") != "yes":
        refused = "Nothing was done: tick the box to say that you are sure."
        return render(request, "transaction.html", {**values, "refused": refused}, 400)
    if found.state != "Ongoing":
        refused = f"Nothing was done: the transaction is not open any more (it is in {found.state})."
        return render(request, "transaction.html", {**values, "refused": refused}, 409)
    if form.get("shown") != values["shown"]:
        refused = "Nothing was done: the transaction that the page showed has ended, and this is another one."
        return render(request, "transaction.html", {**values, "refused": refused}, 409)
    await connection_of(request).admin.fence_producers(transactional_id)
    held = f"{found.producer_id}:{found.producer_epoch}"
    record_action(request, f"aborted the transaction of {transactional_id!r}, fenced producer {held}")
    session_of(
        request
    ).notice = (
        f"The transaction of {transactional_id!r} is aborted. Its producer {held} is fenced: restart that program."
    )
    from urllib.parse import quote

    return RedirectResponse(f"/transaction?id={quote(transactional_id, safe='')}", 303)
