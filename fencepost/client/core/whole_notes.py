"""The note beside a committed offset: what above it a reader of whole transactions has dealt with already."""

from collections.abc import Iterable, Mapping
from typing import Final

_NOTE, _CUT = "fencepost/1", "cut"
MOST_NOTE_BYTES: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""


def write_note(offset: int, given: Mapping[int, int], cuts: Iterable[int] = ()) -> str:
    """Which producers' records at or above `offset` are done with, up to which offset, and who had lost a beginning."""
    entries = [f"{owner:x}.{last - offset:x}" for owner, last in sorted(given.items())]
    entries += [f"{owner:x}.{_CUT}" for owner in sorted(cuts)]
    return f"{_NOTE} {','.join(entries)}"


def read_note(offset: int, note: str | None) -> tuple[dict[int, int], set[int]] | None:
    """What `write_note` wrote; None for any other text."""
    if note is None or not note.startswith(_NOTE + " "):
        return None
    given: dict[int, int] = {}
    cuts: set[int] = set()
    try:
        for entry in filter(None, note[len(_NOTE) + 1 :].split(",")):
            owner, ahead = entry.split(".")
            if ahead == _CUT:
                cuts.add(int(owner, 16))
            else:
                given[int(owner, 16)] = offset + int(ahead, 16)
    except ValueError:
        return None
    return given, cuts
