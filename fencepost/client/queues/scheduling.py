"""The header that schedules a record for share groups."""

import time
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.client.options import milliseconds
from fencepost.protocol.not_before import NOT_BEFORE

if TYPE_CHECKING:
    from fencepost.client.keywords import Duration


def not_before(when: "datetime | Duration") -> tuple[str, bytes]:
    """A header with which no share group gets a record before `when`: `send(..., headers=[not_before(when)])`.

    `when` is a datetime with a time zone, or seconds or a timedelta from now. The topic needs
    `share.not.before.enable=true`. Raises ValueError for a datetime without a time zone.
    """
    if not isinstance(when, datetime):
        time_ms = time.time_ns() // 1_000_000 + milliseconds(when)
    elif when.tzinfo is None:
        raise ValueError(f"{when} has no time zone: give one, such as datetime.UTC")
    else:
        time_ms = round(when.timestamp() * 1000)
    return NOT_BEFORE, b"%d" % max(time_ms, 0)
