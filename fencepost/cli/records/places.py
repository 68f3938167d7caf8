"""Where `fencepost consume` begins and ends in a partition, in the notation of kcat and rpk."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from fencepost.client import Consumer
    from fencepost.protocol.topics import TopicPartition

_KINDS = {"beginning": "first", "start": "first", "earliest": "first", "end": "end", "latest": "end"}
_RANGE = re.compile(r"(\d+):(\d+)")
_TIME = re.compile(r"([se]?)@(.+)")
_NUMBER = re.compile(r"[+-]?\d+")


class Bound(NamedTuple):
    """A place in each partition: `kind` is first, end, offset, after_first, before_end or time."""

    kind: str
    number: int = 0
    """An offset, a number of records, or ms since 1970."""


FIRST = Bound("first")


class Extent(NamedTuple):
    """Where to begin and, unless it is None, where to end: before that place."""

    begin: Bound | None
    end: Bound | None = None


class OffsetType(click.ParamType):  # type: ignore[type-arg]
    """beginning, end, N, -N, +N, N:M, @TIME, s@TIME or e@TIME."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Extent:
        """The extent that one option names; `of_all` combines them."""
        if isinstance(value, Extent):
            return value
        text = str(value)
        if text in _KINDS:
            return Extent(Bound(_KINDS[text]))
        if found := _RANGE.fullmatch(text):
            return Extent(Bound("offset", int(found[1])), Bound("offset", int(found[2])))
        if found := _TIME.fullmatch(text):
            bound = Bound("time", self._moment(found[2], param, ctx))
            return Extent(None, bound) if found[1] == "e" else Extent(bound)
        if not _NUMBER.fullmatch(text):
            self.fail(f"{value!r} is no offset; write beginning, end, 7, -7, +7, 7:20, @TIME or e@TIME", param, ctx)
        kind = {"-": "before_end", "+": "after_first"}.get(text[0], "offset")
        return Extent(Bound(kind, int(text.lstrip("+-"))))

    def _moment(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no time; write ms since 1970, or 2026-11-21T18:00:00, UTC", param, ctx)
        return round((at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp() * 1000)


def of_all(given: Iterable[Extent]) -> Extent:
    """One extent of all -o: one may name the begin, another the end. Raises UsageError if two name the same."""
    begin = end = None
    for one in given:
        if (one.begin and begin) or (one.end and end):
            raise click.UsageError("-o is given twice; only a begin and an end, as -o s@TIME -o e@TIME, go together")
        begin, end = one.begin or begin, one.end or end
    return Extent(begin, end)


async def offsets_of(
    consumer: "Consumer[Any, Any]", bound: Bound, partitions: "Iterable[TopicPartition]"
) -> "Mapping[TopicPartition, int]":
    """The offset of the place in each partition; a time after the last record is the end."""
    wanted = list(partitions)
    if bound.kind == "offset":
        return dict.fromkeys(wanted, bound.number)
    first = await consumer.beginning_offsets(*wanted)
    if bound.kind == "first":
        return first
    end = await consumer.end_offsets(*wanted)
    if bound.kind == "after_first":
        return {one: min(first[one] + bound.number, end[one]) for one in wanted}
    if bound.kind == "before_end":
        return {one: max(end[one] - bound.number, first[one]) for one in wanted}
    if bound.kind == "end":
        return end
    found = await consumer.offsets_for_times(dict.fromkeys(wanted, bound.number))
    return {one: end[one] if (at := found[one]) is None else at.offset for one in wanted}
