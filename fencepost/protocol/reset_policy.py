"""Where to read without a valid position: `auto.offset.reset` of a consumer, `share.auto.offset.reset` of a group."""

import re
from typing import NamedTuple

EARLIEST, LATEST = -2, -1
_BY_DURATION = "by_duration:"
# As java.time.Duration reads it: days are of 24 hours, there are no months.
_ISO = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d{1,9}))?S)?)?",
    re.IGNORECASE,
)


class ResetPolicy(NamedTuple):
    """`auto.offset.reset`: "earliest", "latest", "none", or "by_duration" with the milliseconds back from now."""

    kind: str
    duration_ms: int = 0

    def timestamp(self, now_ms: int) -> int | None:
        """The timestamp for ListOffsets; None where the program decides itself."""
        match self.kind:
            case "earliest":
                return EARLIEST
            case "latest":
                return LATEST
            case "by_duration":
                return max(now_ms - self.duration_ms, 0)
        return None

    def __str__(self) -> str:
        return f"{_BY_DURATION}{self.duration_ms} ms" if self.kind == "by_duration" else self.kind


def parse_reset(text: str) -> ResetPolicy:
    """ "earliest", "latest", "none" or "by_duration:P1DT2H30M15.5S". Raises ValueError for anything else."""
    if text in ("earliest", "latest", "none"):
        return ResetPolicy(text)
    duration = text[len(_BY_DURATION) :] if text.startswith(_BY_DURATION) else ""
    found = _ISO.fullmatch(duration)
    if found is None or not any(found.groups()):
        raise ValueError("must be earliest, latest, none or by_duration: and an ISO-8601 duration such as P1DT12H")
    days, hours, minutes, seconds, part = found.groups()
    whole_s = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
    return ResetPolicy("by_duration", whole_s * 1000 + int((part or "0").ljust(9, "0")) // 1_000_000)
