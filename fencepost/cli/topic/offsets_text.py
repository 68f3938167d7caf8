"""The output of `fencepost topic offsets` and `trim`."""

from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.cli.plain_text import counted, moment, places, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.client.admin import OffsetInfo
    from fencepost.protocol.topics import TopicPartition


class Cut(NamedTuple):
    """A partition whose log start moves; `error` is why it did not."""

    partition: "TopicPartition"
    first: int
    before: int
    error: str | None = None


class Extent(NamedTuple):
    """Where one partition begins and ends; `late` is the first record of the requested time or later."""

    partition: "TopicPartition"
    first: int
    stable: int
    end: int
    late: "OffsetInfo | None"


def extents_text(found: "Sequence[Extent]", by_time: bool) -> str:
    """One line for each partition, and their sum."""
    head = ["PARTITION", "FIRST", "LSO", "END", "HELD BACK", "OFFSETS"]
    rows: list[tuple[object, ...]] = []
    for one in found:
        row = (places([one.partition]), one.first, one.stable, one.end, one.end - one.stable or "", one.end - one.first)
        if by_time and one.late is not None:
            late = ("none", "none so late") if one.late.offset < 0 else (one.late.offset, moment(one.late.timestamp_ms))
            row = (*row, *late)
        rows.append(row)
    if by_time:
        head += ["FROM THEN", "ITS TIME"]
    return f"{table(head, rows)}\n{counted(sum(one.end - one.first for one in found), 'offset')} in all"


def extent_json(one: Extent, by_time: bool) -> dict[str, Any]:
    fields = {
        "partition": places([one.partition]),
        "first": one.first,
        "last_stable_offset": one.stable,
        "high_watermark": one.end,
        "offsets": one.end - one.first,
    }
    if by_time and one.late is not None:
        found = one.late.offset >= 0
        fields["at"] = {"offset": one.late.offset, "timestamp_ms": one.late.timestamp_ms} if found else None
    return fields


def cuts_text(cuts: "Sequence[Cut]") -> str:
    rows = [
        (
            places([cut.partition]),
            cut.first,
            cut.first if cut.error else cut.before,
            0 if cut.error else cut.before - cut.first,
            f"refused: {cut.error}" if cut.error else "",
        )
        for cut in cuts
    ]
    return table(("PARTITION", "BEGAN AT", "BEGINS AT", "DROPPED", ""), rows)


def cut_json(cut: Cut, dry_run: bool) -> dict[str, Any]:
    return {
        "partition": places([cut.partition]),
        "began_at": cut.first,
        "begins_at": cut.first if cut.error else cut.before,
        "refused": cut.error,
        "dry_run": dry_run,
    }
