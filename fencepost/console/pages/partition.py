"""The partition log: batches, markers, and the offsets that move, as a picture."""

from typing import Any

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fencepost.client import KafkaError
from fencepost.client.admin.client import parts_of
from fencepost.client.admin.fetching import fetch
from fencepost.client.admin.last_stable_offset import check_exists
from fencepost.client.admin.parts import AdminParts
from fencepost.console.errors import described
from fencepost.console.events import Emit
from fencepost.console.numbers import whole_number
from fencepost.console.partition_log import headers_of, window, with_outcomes
from fencepost.console.state import connection_of, open_stream, render
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition

STEP_BYTES = 256 << 10
"""What one refresh reads at most. A log that grows faster is shown from a new window."""
STEP_SECONDS = 0.25


async def show(request: Request) -> Response:
    """The page; the picture's content comes from `data` and `stream`."""
    place = _place(request)
    await check_exists(connection_of(request).parts, place)
    at = _offset(request)
    return render(request, "partition.html", {"place": place, "at": at})


async def data(request: Request) -> Response:
    """A window of batches as JSON: from offset `at` on, or the last ones."""
    place = _place(request)
    at = _offset(request)
    try:
        await check_exists(connection_of(request).parts, place)
        found = await window(connection_of(request).parts, place, at)
    except KafkaError as error:
        trouble = described(error)
        return JSONResponse({"error": trouble.title, "hint": trouble.hint}, trouble.status)
    return JSONResponse(found.as_json(), headers={"cache-control": "no-store"})


async def stream(request: Request) -> Response:
    """New batches and moved offsets as events. `from` is the offset after the page's last batch.

    `window` replaces all that the page has: the log grew by more than one refresh reads. `more` has new batches.
    """
    place = _place(request)
    start = whole_number(request.query_params.get("from", ""))
    if start is None:
        raise HTTPException(404)

    async def work(emit: Emit) -> None:
        offset, before = start, None
        async with connection_of(request).kafka.admin() as admin:  # a fetch waits: not on the pages' connection
            parts = parts_of(admin)
            while True:
                try:
                    news = await _news(parts, place, offset)
                    if news is None:
                        found = await window(parts, place, None)
                        offset = found.next_offset
                        await emit("window", found.as_json())
                    elif news != before:
                        offset = news["next"] or offset
                        await emit("more", news)
                        before = {**news, "next": None, "batches": []}
                except KafkaError as error:
                    await emit("trouble", described(error).title)
                    before = None  # the next event shows that it is over
                    await trio.sleep(2)
                await trio.sleep(STEP_SECONDS)

    return open_stream(request, work)


async def _news(parts: AdminParts, place: TopicPartition, offset: int) -> dict[str, Any] | None:
    """What is new from `offset` on; None if that is too much, or retention deleted the offset. Raises KafkaError."""
    try:
        part = await fetch(parts, place, offset, STEP_BYTES, isolation=IsolationLevel.READ_UNCOMMITTED)
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return None
    read = headers_of(part.records, place)
    if read and read[-1][0].next_offset < part.high_watermark:
        return None
    return {
        "start": part.log_start_offset,
        "stable": part.last_stable_offset,
        "high": part.high_watermark,
        "next": read[-1][0].next_offset if read else None,
        "batches": [batch.as_json() for batch in with_outcomes(read, part.last_stable_offset, (), None)],
    }


def _place(request: Request) -> TopicPartition:
    return TopicPartition(request.path_params["topic"], request.path_params["partition"])


def _offset(request: Request) -> int | None:
    """The offset `at` of the query, None for the end; raises HTTPException (404) if it is none."""
    text = request.query_params.get("at", "")
    number = whole_number(text)
    if text and number is None:
        raise HTTPException(404)
    return number
