"""Points in the commit of a micro-batch at which a process is made to die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio.lowlevel
import trio.testing

from fencepost.client.transactions.requests import TransactionLink
from fencepost.spark_connector.sink import lanes as sink_lanes

POINTS = ("before EndTxn", "EndTxn sent", "EndTxn answered", "committed")
"""The last one is between the sink's commit and Spark's own log of it."""
LANE_POINTS = (*POINTS, "prepared", "decided", "a lane committed")


def arm(point: str, die: Callable[[], None]) -> None:
    """From now on `die` is called when this process comes to the point; "committed" and "prepared" are the caller's."""
    end, commit_lane = TransactionLink._end, sink_lanes._commit_lane

    async def ending(link: TransactionLink, wanted: Any) -> Any:
        if wanted.commit and point == "before EndTxn":
            die()
        if wanted.commit and point == "EndTxn sent":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end, link, wanted)
                await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked(0.001)
                die()
        answer = await end(link, wanted)
        if wanted.commit and point == "EndTxn answered":
            die()
        return answer

    def committing(*args: Any) -> None:
        if point == "decided":
            die()
        commit_lane(*args)
        if point == "a lane committed":
            die()

    TransactionLink._end = ending  # type: ignore[method-assign]
    sink_lanes._commit_lane = committing
