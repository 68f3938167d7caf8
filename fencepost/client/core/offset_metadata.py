"""The metadata of a committed offset: what above it a reader of whole transactions has processed already."""

from collections.abc import Iterable, Mapping
from typing import Final

_FORMAT, _CUT = "fencepost/1", "cut"
METADATA_BYTES_MAX: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""


def encode_metadata(offset: int, given: Mapping[int, int], cuts: Iterable[int] = ()) -> str:
    """The text for `given`, the producers with processed records at or above `offset` and their last such offsets.

    `cuts` are the producers of transactions whose beginning was not read.
    """
    entries = [f"{owner:x}.{last - offset:x}" for owner, last in sorted(given.items())]
    entries += [f"{owner:x}.{_CUT}" for owner in sorted(cuts)]
    return f"{_FORMAT} {','.join(entries)}"


def decode_metadata(offset: int, metadata: str | None) -> tuple[dict[int, int], set[int]] | None:
    """The values behind the text of `encode_metadata`; None for any other text."""
    if metadata is None or not metadata.startswith(_FORMAT + " "):
        return None
    given: dict[int, int] = {}
    cuts: set[int] = set()
    try:
        for entry in filter(None, metadata[len(_FORMAT) + 1 :].split(",")):
            owner, ahead = entry.split(".")
            if ahead == _CUT:
                cuts.add(int(owner, 16))
            else:
                given[int(owner, 16)] = offset + int(ahead, 16)
    except ValueError:
        return None
    return given, cuts
