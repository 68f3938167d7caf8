"""Acknowledgements of records of a share group: their types, and the batches that carry them (KIP-932)."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class AcknowledgeType(IntEnum):
    """What becomes of an acquired record, by Kafka's numbers (KIP-932; RENEW: KIP-1222)."""

    GAP = 0
    """There is no record for a program at the offset: a marker, or compaction removed it."""
    ACCEPT = 1
    """It is processed."""
    RELEASE = 2
    """It is available again, for any member."""
    REJECT = 3
    """It is archived: no member gets it again."""
    RENEW = 4
    """It stays acquired, and its lock begins anew."""


class Acknowledgement(NamedTuple):
    """What is said of one record; a released one is held back by the broker for `delay_ms`."""

    offset: int
    kind: AcknowledgeType
    delay_ms: int = 0


class AcknowledgementBatch(NamedTuple):
    """Offsets in a row, both ends included. `types` has one type for each, or one for all."""

    first_offset: int
    last_offset: int
    types: tuple[AcknowledgeType, ...]
    delay_ms: int = 0


def in_batches(entries: Iterable[Acknowledgement]) -> list[AcknowledgementBatch]:
    """Acknowledgements of one partition, each offset once, in as few batches as possible.

    Brokers take ranges in rising order that do not overlap (KafkaApis.validateAcknowledgementBatches). One type stands
    for a whole range (KIP-932), and one delay.
    """
    batches: list[AcknowledgementBatch] = []
    first, types, delay_ms = 0, list[AcknowledgeType](), 0
    for offset, kind, delay in sorted(entries):
        if types and (offset != first + len(types) or delay != delay_ms):
            batches.append(_batch(first, types, delay_ms))
            types = []
        if not types:
            first, delay_ms = offset, delay
        types.append(kind)
    if types:
        batches.append(_batch(first, types, delay_ms))
    return batches


def _batch(first: int, types: list[AcknowledgeType], delay_ms: int) -> AcknowledgementBatch:
    alike = types.count(types[0]) == len(types)
    return AcknowledgementBatch(first, first + len(types) - 1, tuple(types[:1] if alike else types), delay_ms)
