"""The records that a consumer gives to the program, alone or in batches."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Generic, NamedTuple, cast, overload

from fencepost.client.config import ConsumerConfig, QueueConfig
from fencepost.client.consumer.read_errors import DeserializationError
from fencepost.client.key_value import K, V
from fencepost.client.serializers import SerializationError
from fencepost.protocol.records import Record as Record  # public: a program sees it in `runs`
from fencepost.protocol.topics import TopicPartition


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record; the timestamp is in ms, `headers` are (name, bytes or None) pairs.

    K and V are what the deserializers return; without them, bytes. A null key or value is None with every deserializer.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...]


_new = tuple.__new__
_SHOWN_RUNS = 3
"""How many partitions the repr of a batch names."""


def as_consumed(prefix: tuple[str, int], record: Record) -> "ConsumerRecord[Any, Any]":
    """The record with its topic and partition, key and value unchanged."""
    made: ConsumerRecord[Any, Any] = _new(ConsumerRecord, prefix + record)
    return made


def deserialized(
    partition: TopicPartition, record: Record, config: ConsumerConfig | QueueConfig
) -> "ConsumerRecord[Any, Any]":
    """The record for the program, with key and value deserialized.

    Raises DeserializationError; its cause is the deserializer's error.
    """
    offset, timestamp_ms, key, value, headers = record
    try:
        if config.key_deserializer is not None and key is not None:
            key = config.key_deserializer(partition.topic, headers, key)
        if config.value_deserializer is not None and value is not None:
            value = config.value_deserializer(partition.topic, headers, value)
    except SerializationError as wrong:
        raise DeserializationError(partition, offset, str(wrong)) from wrong.__cause__
    return ConsumerRecord(partition.topic, partition.partition, offset, timestamp_ms, key, value, headers)


def reading_of(batch: "ConsumerBatch[K, V]") -> "Callable[[TopicPartition, Record], ConsumerRecord[K, V]]":
    """The function that turns a record of the batch's `runs` into one for the program."""
    config = batch._config
    if config.key_deserializer is None and config.value_deserializer is None:
        return as_consumed
    return lambda partition, record: deserialized(partition, record, config)


class ConsumerBatch(Sequence[ConsumerRecord[K, V]]):
    """Records of one or more partitions, in order within each. `runs` gives them without a topic on every record.

    Each iteration over the batch deserializes keys and values; DeserializationError is raised in
    that loop. `runs` always have the bytes.
    """

    __slots__ = ("_config", "_count", "runs")

    def __init__(self, runs: list[tuple[TopicPartition, list[Record]]], config: ConsumerConfig) -> None:
        self.runs = runs
        self._config = config
        self._count = sum(len(records) for _, records in runs)

    def __repr__(self) -> str:
        runs = [f"{partition} {records[0].offset} to {records[-1].offset}" for partition, records in self.runs]
        more = len(runs) - _SHOWN_RUNS
        rest = f" and {more} more partitions" if more > 0 else ""
        return f"<ConsumerBatch of {self._count} records: {', '.join(runs[:_SHOWN_RUNS])}{rest}>"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        if self._config.key_deserializer is None and self._config.value_deserializer is None:
            return cast("Iterator[ConsumerRecord[K, V]]", self._plain())
        return self._deserialized()

    def _plain(self) -> Iterator[Any]:
        """As `as_consumed` for each, without a frame of Python per record."""
        if len(self.runs) == 1:
            partition, records = self.runs[0]
            prefix = (partition.topic, partition.partition)
            return map(_new, repeat(ConsumerRecord), map(prefix.__add__, records))
        return self._plain_runs()

    def _plain_runs(self) -> Iterator[Any]:
        for partition, records in self.runs:
            prefix = (partition.topic, partition.partition)
            yield from map(_new, repeat(ConsumerRecord), map(prefix.__add__, records))

    def _deserialized(self) -> "Iterator[ConsumerRecord[K, V]]":
        for partition, records in self.runs:
            for record in records:
                yield deserialized(partition, record, self._config)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord[K, V]]: ...
    def __getitem__(self, index: int | slice) -> "ConsumerRecord[K, V] | list[ConsumerRecord[K, V]]":
        if isinstance(index, slice):
            return list(self)[index]
        if not -self._count <= index < self._count:
            raise IndexError(f"record {index} of a batch of {self._count}")
        index %= self._count
        for partition, records in self.runs:
            if index < len(records):
                return deserialized(partition, records[index], self._config)
            index -= len(records)
        raise AssertionError("a batch's count is that of its runs")
