"""What the values of options look like, to the source and to the sink. Each raises ValueError with what it must be."""

import difflib
from collections.abc import Mapping

OF_JAVAS_CLIENTS = (
    "kafka.send.buffer.bytes",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.auto.include.jmx.reporter",
    "kafka.enable.metrics.push",
    "kafka.security.providers",
)
"""What steers the metrics or the sockets of any client of Java's, and changes nothing here."""


class OptionError(ValueError):
    """An option that does not exist, does not fit the others, or has a value it cannot take."""


def canonical(
    options: Mapping[str, str], spelling: Mapping[str, str], refused: Mapping[str, str], to_whom: str = ""
) -> dict[str, str]:
    """Options under the names of `spelling`, which has them by their lower case. Raises OptionError for another name,
    with the nearest, and for one that is `refused`, with the reason.
    """
    given: dict[str, str] = {}
    for name, value in options.items():
        known = spelling.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), spelling, n=1, cutoff=0.5)
            hint = f"; did you mean {spelling[near[0]]}?" if near else ""
            raise OptionError(f"option {name} is not known{to_whom}{hint}")
        if known in refused:
            raise OptionError(f"option {known} cannot be set: {refused[known]}")
        given[known] = value
    return given


def positive(text: str) -> int:
    """1 and above."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("must be a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    """0 and above."""
    if not text.isascii() or not text.isdigit():
        raise ValueError("must be a whole number, 0 or above")
    return int(text)


def boolean(text: str) -> bool:
    """true or false, in any case, as Spark takes them."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"
