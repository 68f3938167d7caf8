"""Consumer groups' records from Apache Kafka 4.3.1's `__consumer_offsets`: read and written back the same (G8)."""

import json
from pathlib import Path

import pytest

from fencepost.coordinator.group.codec import decode, encode
from fencepost.coordinator.group.consumer.codec import KEY_VERSIONS
from fencepost.coordinator.group.consumer.records import CONSUMER_RECORDS, MemberRecord

RECORDS: list[tuple[str, str | None]] = json.loads((Path(__file__).parent / "consumer_records.json").read_text())


def kind_of(key: str) -> int:
    return int(key[:4], 16)


def test_every_kind_is_there_with_its_tombstone() -> None:
    """Kind 4 is only ever taken away since Kafka 4.1."""
    kinds = {kind_of(key) for key, value in RECORDS if value is not None}
    assert kinds == KEY_VERSIONS - {4}
    assert 4 in {kind_of(key) for key, value in RECORDS if value is None}


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_kafkas_bytes_come_out_as_they_went_in_g8(key: str, value: str | None) -> None:
    kafkas = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    record = decode(*kafkas)
    assert isinstance(record, CONSUMER_RECORDS)
    assert encode(record) == kafkas


def test_members_of_both_protocols_are_among_them() -> None:
    members = [record for key, value in RECORDS if isinstance(record := decode(*_bytes(key, value)), MemberRecord)]
    kinds = {record.value.classic is None for record in members if record.value is not None}
    assert kinds == {True, False}


def _bytes(key: str, value: str | None) -> tuple[bytes, bytes | None]:
    return bytes.fromhex(key), None if value is None else bytes.fromhex(value)
