"""What a consumer gives to the program: records, alone or in batches."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

from fencepost.client.config import ConsumerConfig
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition


class ConsumerRecord(NamedTuple):
    """One record as it was read; the timestamp is in ms, `headers` are (name, bytes or None) pairs."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


def deserialized(partition: TopicPartition, record: Record, config: ConsumerConfig) -> ConsumerRecord:
    """The record as the program gets it, key and value passed through its deserializers."""
    offset, timestamp_ms, key, value, headers = record
    if config.key_deserializer is not None and key is not None:
        key = config.key_deserializer(key)
    if config.value_deserializer is not None and value is not None:
        value = config.value_deserializer(value)
    return ConsumerRecord(partition.topic, partition.partition, offset, timestamp_ms, key, value, headers)


class ConsumerBatch(Sequence[ConsumerRecord]):
    """Records of one or more partitions, in order within each. `runs` gives them without a topic on every record."""

    __slots__ = ("_config", "_count", "runs")

    def __init__(self, runs: list[tuple[TopicPartition, list[Record]]], config: ConsumerConfig) -> None:
        self.runs = runs
        self._config = config
        self._count = sum(len(records) for _, records in runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConsumerRecord]:
        for partition, records in self.runs:
            for record in records:
                yield deserialized(partition, record, self._config)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        return list(self)[index]
