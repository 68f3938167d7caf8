"""Partitions as Kafka's Java producer chooses them: its own numbers, in tests/golden/kafka_partitions.json.

KafkaPartitions.java beside that file makes them, with kafka-clients 4.3.1 on the class path.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.core.partitioner import (
    KeyHashes,
    Load,
    StickyPartition,
    cumulative_weights,
    murmur2,
    partition_for_key,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "kafka_partitions.json").read_text(encoding="utf-8")
)
COUNTS = (1, 3, 7, 1000)


class Drawn:
    """A random source that gives numbers of 31 bits which are known before."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers: Iterator[int] = iter(numbers)

    def random(self) -> float:
        return next(self._numbers) / 2**31


def test_murmur2_and_the_partitions_of_keys_are_javas() -> None:
    """Empty, unicode and binary keys of all lengths: toPositive(murmur2(key)) % partitions."""
    assert len(GOLDEN["keys"]) > 150
    for text, signed, partitions in GOLDEN["keys"]:
        key = bytes.fromhex(text)
        assert murmur2(key) == signed & 0xFFFFFFFF, text
        assert [partition_for_key(key, count) for count in COUNTS] == partitions, text
        assert [KeyHashes(count).partition(key) for count in COUNTS] == partitions, text


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_numbers_that_kafkas_java_client_is_tested_with(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@pytest.mark.parametrize("number", range(len(GOLDEN["runs"])))
def test_runs_of_keyless_records_go_where_java_sends_them(number: int) -> None:
    """KIP-794: uniform by bytes, adaptive by queue length, leaderless and slow partitions left out."""
    run = GOLDEN["runs"][number]
    sticky = StickyPartition(run["sticky"], Drawn(run["drawn"]), run["adaptive"])
    for sizes, left_out, size_bytes, full, expected in run["steps"]:
        load = Load(run["partitions"], run["available"], sizes, frozenset(left_out))
        if sticky.current < 0:
            sticky.begin(load)
        assert sticky.current == expected
        if sticky.produced(size_bytes):
            sticky.settle(lambda load=load: load, full)  # type: ignore[misc]


def test_shorter_queues_get_more_in_proportion() -> None:
    """What Kafka's own test expects: for queues of 5, 0, 3, 0, 1 the frequencies 1, 6, 3, 6, 5."""
    load = Load(5, range(5), [5, 0, 3, 0, 1])
    weights = cumulative_weights(load)
    assert weights is not None
    end = weights[0][-1]
    sticky = StickyPartition(1, Drawn(list(range(end))))
    assert Counter(sticky.begin(load) for _ in range(end)) == {0: 1, 1: 6, 2: 3, 3: 6, 4: 5}


def test_keys_are_remembered_within_bounds() -> None:
    hashes = KeyHashes(7)
    for number in range(50_000):
        key = b"%d" % number
        assert hashes.partition(key) == partition_for_key(key, 7)
    assert len(hashes._known) <= 20_000
