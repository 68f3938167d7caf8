"""Encodes Spark's Arrow rows as record batches per partition. The producer's fields are filled in later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple

from fencepost.client.config import ProducerConfig
from fencepost.client.producer.accumulator import RECORD_OVERHEAD, NewRecord
from fencepost.client.producer.broker_state import level_of
from fencepost.protocol.record_batch import build_batch
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.sink.encode_keys import byte_spans, partitions_of_keys

_BYTES = ("string", "binary")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
_BATCH_OVERHEAD = 256
_HEADER_BYTES = 10
_NO_TIMESTAMP = -1
_SHOWN_KEY_BYTES = 60


class SinkError(Exception):
    """The sink cannot continue. The message says what to do."""


class Encoded(NamedTuple):
    """One record batch (format v2) for one partition, still without producer id, epoch and sequence."""

    topic: str
    partition: int
    data: bytes
    records: int


def sink_columns(schema: Sequence[tuple[str, str]], topic: str | None) -> dict[str, int]:
    """The positions of the columns key, value, topic, partition, headers and timestamp in the frame.

    `schema` holds (name, Spark's simple type) for each column. Other columns are ignored, as in Spark's Kafka sink.
    Raises OptionError for a missing value or topic, and for a column of another type.
    """
    found: dict[str, int] = {}
    for position, (name, kind) in enumerate(schema):
        known = name.lower()
        if known not in _TYPES:
            continue
        if known in found:
            raise OptionError(f"two columns are named {known}")
        if kind not in _TYPES[known]:
            raise OptionError(f"column {known} is {kind}, but the sink needs {' or '.join(_TYPES[known])}: cast it")
        found[known] = position
    if "value" not in found:
        raise OptionError("the sink needs a column named value, string or binary")
    if topic is None and "topic" not in found:
        raise OptionError("the sink needs a topic: set the option topic, or add a column of that name")
    if topic is not None:
        found.pop("topic", None)
    return found


class _Pending:
    """Records of one partition that do not fill a record batch yet."""

    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records: list[NewRecord] = []
        self.size_bytes = 0


class Encoder:
    """Encodes one task's rows as record batches of about `batch_size` bytes each, before compression.

    The column `partition` sets a row's partition. Without it the key does, with Java's murmur2. Rows without either go
    to one partition for `batch_size` bytes and then to the next; `start` is the first such partition.

    `partitions_of` returns the number of a topic's partitions. Rows of one task keep their order in each partition.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        topic: str | None,
        config: ProducerConfig,
        partitions_of: Callable[[str], int],
        wall_clock_ms: Callable[[], int],
        start: int = 0,
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._compression, self._level = config.compression_type, level_of(config)
        self._largest = config.max_request_size - _BATCH_OVERHEAD
        self._target = max(min(config.batch_size, self._largest) - _BATCH_OVERHEAD, 1)
        self._ignore_keys = config.partitioner_ignore_keys
        self._partitions_of = partitions_of
        self._wall_clock_ms = wall_clock_ms
        self._start = start
        self._keyless_bytes: dict[str, int] = {}
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._rows_before = 0
        self._taken: Any = None
        """The rows of Spark's batch that are being added; None for all."""
        self.rows = 0

    def add(self, batch: Any) -> Iterator[Encoded]:
        """Add a pyarrow RecordBatch; yields the full record batches. Raises SinkError for an invalid row."""
        if not batch.num_rows:
            return
        self._rows_before = self.rows
        self.rows += batch.num_rows
        if self._topic is not None:
            yield from self._add_to(self._topic, batch)
            return
        column = batch.column(self._columns["topic"])
        if column.null_count:
            row = self._row(batch, column.is_null().to_numpy(zero_copy_only=False))
            raise SinkError(f"{row} has no topic: its topic column is null, and the option topic is not set")
        encoded = column.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            yield from self._add_to(topics[0], batch)
            return
        import numpy as np

        indices = encoded.indices.to_numpy(zero_copy_only=False)
        for number, topic in enumerate(topics):
            self._taken = np.flatnonzero(indices == number)
            yield from self._add_to(topic, batch.take(_index(self._taken)))
        self._taken = None

    def finish(self) -> Iterator[Encoded]:
        """The last, partly filled record batches."""
        for (topic, partition), pending in sorted(self._pending.items()):
            if pending.records:
                yield self._built(topic, partition, pending)

    def _add_to(self, topic: str, batch: Any) -> Iterator[Encoded]:
        import numpy as np

        keys = self._binary(batch, "key")
        values = self._binary(batch, "value")
        sizes = np.full(batch.num_rows, RECORD_OVERHEAD, np.int64) + byte_spans(values)[1]
        if keys is not None:
            sizes += byte_spans(keys)[1]
        headers = self._headers(batch)
        times = self._times(batch)
        if headers is not None:
            sizes += [sum(_HEADER_BYTES + 3 * len(name) + len(value or b"") for name, value in one) for one in headers]
        if sizes.max() > self._largest:
            raise SinkError(
                f"{self._row(batch, sizes > self._largest)} is a record of {int(sizes.max())} bytes for topic {topic},"
                f" larger than kafka.max.request.size ({self._largest + _BATCH_OVERHEAD}): raise it, and"
                " max.message.bytes of the topic"
            )
        partitions = self._partitions(topic, batch, keys, sizes)
        if (partitions != partitions[0]).any():
            order = np.argsort(partitions, kind="stable")
            partitions, sizes = partitions[order], sizes[order]
            values = values.take(_index(order))
            keys = None if keys is None else keys.take(_index(order))
            headers = None if headers is None else [headers[row] for row in order]
            times = None if times is None else times[order]
        records = list(
            zip(
                repeat(self._wall_clock_ms()) if times is None else times.tolist(),
                repeat(None) if keys is None else keys.to_pylist(),
                values.to_pylist(),
                repeat(()) if headers is None else headers,
                strict=False,
            )
        )
        borders = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(records)]
        sums = np.concatenate(([0], np.cumsum(sizes)))
        for first, last in pairwise(borders):
            yield from self._fill(topic, int(partitions[first]), records, sums, first, last)

    def _fill(
        self, topic: str, partition: int, records: list[Any], sums: Any, first: int, last: int
    ) -> Iterator[Encoded]:
        """Add records[first:last] to the partition; `sums` are the cumulated sizes. Yields full record batches."""
        import numpy as np

        pending = self._pending.setdefault((topic, partition), _Pending())
        while first < last:
            room = sums[first] + self._target - pending.size_bytes
            until = min(int(np.searchsorted(sums, room, "right")) - 1, last)
            if until <= first and not pending.records:
                until = first + 1
            if until > first:
                pending.records += records[first:until]
                pending.size_bytes += int(sums[until] - sums[first])
                first = until
            if first < last:
                yield self._built(topic, partition, pending)

    def _built(self, topic: str, partition: int, pending: _Pending) -> Encoded:
        records, pending.records, pending.size_bytes = pending.records, [], 0
        data = build_batch(records, compression=self._compression, level=self._level)
        return Encoded(topic, partition, bytes(data), len(records))

    def _partitions(self, topic: str, batch: Any, keys: Any, sizes: Any) -> Any:
        """The partition of each row, as numpy int32."""
        import numpy as np

        count = self._partitions_of(topic)
        if keys is None or self._ignore_keys:
            keyless = np.ones(batch.num_rows, bool)
            chosen = np.zeros(batch.num_rows, np.int32)
        else:
            keyless = keys.is_null().to_numpy(zero_copy_only=False)
            chosen = partitions_of_keys(keys, count)
        if keyless.any():
            before = self._keyless_bytes.get(topic, 0)
            sums = before + np.cumsum(sizes[keyless])
            runs = (sums - sizes[keyless]) // self._target
            chosen[keyless] = (self._start + runs) % count
            self._keyless_bytes[topic] = int(sums[-1])
        if "partition" in self._columns:
            column = batch.column(self._columns["partition"])
            has_partition = ~column.is_null().to_numpy(zero_copy_only=False)
            numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
            wrong = has_partition & ((numbers < 0) | (numbers >= count))
            if wrong.any():
                raise SinkError(
                    f"{self._row(batch, wrong)} has partition {int(numbers[wrong][0])}, but topic {topic} has {count}"
                    " partitions: create the topic with more, or drop the column `partition`"
                )
            chosen[has_partition] = numbers[has_partition]
        return chosen

    def _binary(self, batch: Any, name: str) -> Any:
        """A column of strings or bytes, as bytes; None if there is no such column."""
        import pyarrow as pa

        if name not in self._columns:
            return None
        column = batch.column(self._columns[name])
        return column.cast(pa.large_binary() if str(column.type).startswith("large_") else pa.binary())

    def _headers(self, batch: Any) -> list[tuple[tuple[str, bytes | None], ...]] | None:
        if "headers" not in self._columns:
            return None
        rows = batch.column(self._columns["headers"]).to_pylist()
        found = [tuple((one["key"], one["value"]) for one in row or () if one is not None) for row in rows]
        nameless = [any(name is None for name, _ in row) for row in found]
        if any(nameless):
            raise SinkError(f"{self._row(batch, nameless)} has a header without a key")
        return found

    def _times(self, batch: Any) -> Any:
        """Milliseconds since 1970, where null means now; None if there is no column of timestamps."""
        import numpy as np
        import pyarrow as pa

        if "timestamp" not in self._columns:
            return None
        column = batch.column(self._columns["timestamp"])
        column = column.cast(pa.int64())
        micros = column.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = (micros < 0) & (micros != 1000 * _NO_TIMESTAMP)
        if wrong.any():
            raise SinkError(f"{self._row(batch, wrong)} has a timestamp before 1970, which Kafka refuses")
        return np.where(column.is_null().to_numpy(zero_copy_only=False), self._wall_clock_ms(), micros // 1000)

    def _row(self, batch: Any, which: Any) -> str:
        """The first of these rows, for a message."""
        place = list(which).index(True)
        keys = self._binary(batch, "key")
        key = None if keys is None else keys[place].as_py()
        named = "" if key is None else f" (key {key[:_SHOWN_KEY_BYTES]!r})"
        number = self._rows_before + 1 + int(place if self._taken is None else self._taken[place])
        return f"row {number} of task {self._start}{named}"


def _index(rows: Any) -> Any:
    import pyarrow as pa

    return pa.array(rows)
