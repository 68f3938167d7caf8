"""Bytes of other people's clients and of Apache Kafka 4.3.1: we read them, and write the same bytes again.

The files are made by `python -m tests.golden.capture`. Requests come from confluent-kafka 2.16.1, aiokafka 0.14.0,
kafka-python 3.0.12 and Kafka's Java clients 4.3.1 (a few are Kafka's own, to its coordinators); responses are Kafka's.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.protocol.headers import (
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)
from fencepost.protocol.registry import API_BY_NAME, Api
from fencepost.protocol.schema import DecodeError

GOLDEN_FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


class Golden(NamedTuple):
    """One line of a golden file."""

    api: Api
    version: int
    request: bytes
    response: bytes


def _load() -> list[object]:
    found = []
    for path in GOLDEN_FILES:
        for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
            entry = json.loads(line)
            golden = Golden(
                API_BY_NAME[entry["api"]],
                entry["version"],
                bytes.fromhex(entry["request"]),
                bytes.fromhex(entry["response"]),
            )
            found.append(pytest.param(golden, id=f"{path.stem}:{number}-{golden.api.name}-v{golden.version}"))
    return found


every_exchange = pytest.mark.parametrize("golden", _load())


def test_the_clients_and_the_transaction_cycle_are_there() -> None:
    """An empty or lost file must not look like success."""
    seen = {param.values[0].api.name for param in _load()}
    assert {path.stem for path in GOLDEN_FILES} == {"aiokafka", "confluent-kafka", "java-clients", "kafka-python"}
    assert seen >= {"Produce", "Fetch", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"}
    assert seen >= {"EndTxn", "WriteTxnMarkers", "JoinGroup", "SyncGroup", "OffsetCommit", "OffsetFetch"}


@every_exchange
def test_a_request_is_read_and_written_again_to_the_same_bytes(golden: Golden) -> None:
    header = read_request_header(golden.request)
    assert (header.api_key, header.api_version) == (golden.api.key, golden.version)
    value = golden.api.request.decode(golden.request, golden.version, header.body_start)
    again = write_request_header(golden.api, golden.version, header.correlation_id, header.client_id)
    again += golden.api.request.encode(value, golden.version)
    assert again.hex() == golden.request.hex()


@every_exchange
def test_a_response_is_read_and_written_again_to_the_same_bytes(golden: Golden) -> None:
    correlation_id, body_start = read_response_header(golden.api, golden.version, golden.response)
    assert correlation_id == read_request_header(golden.request).correlation_id
    value = golden.api.response.decode(golden.response, golden.version, body_start)
    again = write_response_header(golden.api, golden.version, correlation_id)
    again += golden.api.response.encode(value, golden.version)
    assert again.hex() == golden.response.hex()


@every_exchange
def test_every_byte_counts(golden: Golden) -> None:
    """A frame that is one byte short is refused: no field is guessed, none is read from beyond the end."""
    _, body_start = read_response_header(golden.api, golden.version, golden.response)
    if body_start == len(golden.response):
        return  # an empty body cannot be cut
    with pytest.raises(DecodeError):
        golden.api.response.decode(golden.response[:-1], golden.version, body_start)
