"""The options of the Spark source, with the names of Spark's Kafka source. They are checked before any read."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES, LARGEST_BYTES
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.security import security_of
from fencepost.spark_connector.network.wire import Address, ConnectionSettings
from fencepost.spark_connector.offsets import EARLIEST, LATEST, parse_partition_offsets
from fencepost.spark_connector.option_values import OptionError, boolean, canonical, not_negative, positive
from fencepost.spark_connector.source.java_regex import java_pattern
from fencepost.spark_connector.source.option_names import (
    ENDS,
    ONLY_STREAM,
    REFUSED,
    SPELLING,
    STARTS,
    STORES,
    SUBSCRIPTIONS,
)
from fencepost.spark_connector.source.store_settings import StoreSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
DEFAULT_COLUMNS = ALL_COLUMNS[:-1]
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000


class Mode(Enum):
    """Whether the options are for a batch or for a streaming query."""

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True)
class Subscription:
    """What to read: a list of topics, a Java pattern for their names, or partitions. Exactly one is set."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends: one `mark` for all (EARLIEST, LATEST), offsets, or times in ms since 1970."""

    mark: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True)
class SourceOptions:
    """All options of a query's source. Sizes are bytes, times are milliseconds."""

    subscription: Subscription
    starting: Bound
    ending: Bound
    isolation: IsolationLevel
    connection: ConnectionSettings
    """Without an address for a query that reads from the stores."""
    stores: StoreSettings | None = None
    """Where to read from; None: from brokers."""
    latest_if_no_timestamp: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    commit_group: str | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    fetch_bytes: int = 4 << 20
    fetch_wait_ms: int = 500
    check_crcs: bool = True
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    push_filters: bool = False


_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?")
_UNIT_BITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass
class _Given:
    """The given options, by their canonical names."""

    values: dict[str, str]

    def one(self, name: str, convert: Callable[[str], T], default: T) -> T:
        return self.value(name, convert) if name in self.values else default

    def maybe(self, name: str, convert: Callable[[str], T]) -> T | None:
        return self.value(name, convert) if name in self.values else None

    def value(self, name: str, convert: Callable[[str], T]) -> T:
        """The value of a given option. Raises OptionError with the option's name if the value is invalid."""
        try:
            return convert(self.values[name].strip())
        except OptionError:
            raise
        except ValueError as error:
            raise OptionError(f"option {name} = {self.values[name]!r}: {error}") from None

    def exactly_one(self, names: tuple[str, ...]) -> str:
        found = [name for name in names if name in self.values]
        if len(found) != 1:
            given = f"given are {' and '.join(found)}" if found else "none is given"
            raise OptionError(f"set exactly one of {', '.join(names)}; {given}")
        return found[0]

    def first(self, names: tuple[str, ...]) -> str | None:
        """The first given name. A warning names the other given ones, which have no effect."""
        found = [name for name in names if name in self.values]
        for other in found[1:]:
            log.warning("option %s overrides %s, which has no effect", found[0], other)
        return found[0] if found else None


def parse_options(options: Mapping[str, str], mode: Mode | None = None) -> SourceOptions:
    """Check and convert the options of a query. Raises OptionError with the reason.

    `mode` None checks only what holds for batches and streams: Spark asks for the schema before the mode is known.
    """
    given = _Given(canonical(options, SPELLING, REFUSED))
    if mode is Mode.STREAM:
        for name in ENDS:
            if name in given.values:
                raise OptionError(f"option {name} is not allowed in a streaming query: a stream has no end")
        if "pushFilters" in given.values:
            log.warning("option pushFilters has no effect in a streaming query: Spark pushes no filters to it")
    if mode is Mode.BATCH:
        for name in ONLY_STREAM:
            if name in given.values:
                log.warning("option %s has no effect in a batch query", name)
    smallest = given.maybe("minOffsetsPerTrigger", positive)
    largest = given.maybe("maxOffsetsPerTrigger", positive)
    if smallest is not None and largest is not None and smallest > largest:
        raise OptionError(f"minOffsetsPerTrigger {smallest} is larger than maxOffsetsPerTrigger {largest}")
    return SourceOptions(
        subscription=_subscription(given),
        starting=_starting(given, mode),
        ending=_ending(given),
        isolation=IsolationLevel[given.one("kafka.isolation.level", _LEVEL, "read_committed").upper()],
        connection=_connection(given),
        stores=_stores(given),
        latest_if_no_timestamp=given.one("startingOffsetsByTimestampStrategy", _choice("error", "latest"), "error")
        == "latest",
        fail_on_data_loss=given.one("failOnDataLoss", boolean, True),
        max_offsets_per_trigger=largest,
        min_offsets_per_trigger=smallest,
        max_trigger_delay_ms=given.one("maxTriggerDelay", _duration_ms, DEFAULT_MAX_TRIGGER_DELAY_MS),
        max_records_per_trigger=given.maybe("maxRecordsPerTrigger", positive),
        max_bytes_per_trigger=given.maybe("maxBytesPerTrigger", _size_bytes),
        commit_group=given.maybe("commitGroup", _name),
        min_partitions=given.maybe("minPartitions", positive),
        max_records_per_partition=given.maybe("maxRecordsPerPartition", positive),
        max_decompressed_bytes=min(given.one("maxDecompressedBytes", _size_bytes, DEFAULT_LIMIT_BYTES), LARGEST_BYTES),
        columns=_columns(given),
        fetch_bytes=given.one("kafka.max.partition.fetch.bytes", positive, 4 << 20),
        fetch_wait_ms=given.one("kafka.fetch.max.wait.ms", not_negative, 500),
        check_crcs=given.one("kafka.check.crcs", boolean, True),
        push_filters=given.one("pushFilters", boolean, False),
    )


def _choice(*allowed: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text.lower()

    return convert


_LEVEL = _choice("read_committed", "read_uncommitted")


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise ValueError("must be a duration such as 500ms, 30s or 15m")
    return int(found[1]) * _UNIT_MS[found[2]]


def _size_bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.lower())
    if found is None or int(found[1]) == 0:
        raise ValueError("must be a size above 0 such as 1048576, 512k, 64m or 1g")
    return int(found[1]) << _UNIT_BITS[found[2]]


def _name(text: str) -> str:
    if not text:
        raise ValueError("must be the name of a group")
    return text


def _subscription(given: _Given) -> Subscription:
    name = given.exactly_one(SUBSCRIPTIONS)
    if name == "subscribe":
        return Subscription(topics=given.value(name, _topics))
    if name == "subscribePattern":
        return Subscription(pattern=given.value(name, _pattern))
    return Subscription(partitions=given.value(name, _assignment))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise ValueError("must name at least one topic")
    return topics


def _pattern(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    java_pattern(text)
    return text


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    try:
        tree = json.loads(text)
        found = sorted({TopicPartition(topic, number) for topic, numbers in tree.items() for number in numbers})
        wrong = [tp for tp in found if type(tp.partition) is not int or tp.partition < 0]
    except (ValueError, AttributeError, TypeError):
        wrong, found = [], []
    if wrong or not found:
        raise ValueError('must be JSON that names partitions, such as {"topic": [0, 1]}')
    return tuple(found)


def _starting(given: _Given, mode: Mode | None) -> Bound:
    name = given.first(STARTS)
    if name is None:
        return Bound(mark=LATEST if mode is Mode.STREAM else EARLIEST)
    bound = _bound(given, name)
    if mode is Mode.BATCH and (bound.mark == LATEST or LATEST in (bound.offsets or {}).values()):
        raise OptionError("option startingOffsets: a batch query cannot start at latest (-1)")
    return bound


def _ending(given: _Given) -> Bound:
    name = given.first(ENDS)
    if name is None:
        return Bound(mark=LATEST)
    bound = _bound(given, name)
    if bound.mark == EARLIEST or EARLIEST in (bound.offsets or {}).values():
        raise OptionError("option endingOffsets: a query cannot end at earliest (-2)")
    return bound


def _bound(given: _Given, name: str) -> Bound:
    if name.endswith("OffsetsByTimestamp"):
        return Bound(timestamps_ms=given.value(name, lambda text: parse_partition_offsets(text, lowest=0)))
    if name.endswith("Timestamp"):
        return Bound(timestamp_ms=given.value(name, not_negative))
    text = given.values[name].strip().lower()
    if text in ("earliest", "latest"):
        return Bound(mark=EARLIEST if text == "earliest" else LATEST)
    return Bound(offsets=given.value(name, _offsets))


def _offsets(text: str) -> Mapping[TopicPartition, int]:
    try:
        return parse_partition_offsets(text, lowest=EARLIEST)
    except ValueError as error:
        raise ValueError(f"must be earliest, latest, or it {error}") from None


def _columns(given: _Given) -> tuple[str, ...]:
    with_headers = given.maybe("includeHeaders", boolean)
    if "columns" not in given.values:
        return ALL_COLUMNS if with_headers else DEFAULT_COLUMNS
    known = {name.lower(): name for name in ALL_COLUMNS}

    def convert(text: str) -> tuple[str, ...]:
        names = [part.strip() for part in text.split(",")]
        for name in names:
            if name.lower() not in known:
                raise ValueError(f"there is no column {name!r}, only {', '.join(ALL_COLUMNS)}")
        return tuple(dict.fromkeys(known[name.lower()] for name in names))

    columns = given.value("columns", convert)
    if with_headers is not None and with_headers != ("headers" in columns):
        raise OptionError(f"includeHeaders is {str(with_headers).lower()}, but columns is {','.join(columns)}")
    return columns


def _stores(given: _Given) -> StoreSettings | None:
    """The stores, with read=direct. Raises OptionError if one is missing, or has no effect."""
    if given.one("read", _choice("brokers", "direct"), "brokers") == "brokers":
        for name in STORES:
            if name in given.values:
                raise OptionError(f"option {name} needs option read = direct: brokers know their stores")
        return None
    for name, example in STORES.items():
        if name not in given.values:
            raise OptionError(f"option {name} is missing: option read = direct needs it, {example}")
    timeout_ms = given.one("kafka.default.api.timeout.ms", positive, 60_000)
    return StoreSettings(given.value("store", str), given.value("objects", str), timeout_ms)


def _needs_brokers(given: _Given) -> bool:
    return given.values.get("read", "").strip().lower() != "direct" or "commitGroup" in given.values


def _connection(given: _Given) -> ConnectionSettings:
    if "kafka.bootstrap.servers" not in given.values and _needs_brokers(given):
        raise OptionError("option kafka.bootstrap.servers is missing: the address of at least one broker, host:port")
    try:
        security = security_of(given.values)
    except ValueError as error:
        raise OptionError(_CLIENT_NAME.sub(lambda found: f"kafka.{found[1].replace('_', '.')}", str(error))) from None
    return ConnectionSettings(
        bootstrap=given.one("kafka.bootstrap.servers", _addresses, ()),
        client_id=given.one("kafka.client.id", str, "fencepost-spark"),
        request_timeout_ms=given.one("kafka.request.timeout.ms", positive, 30_000),
        api_timeout_ms=given.one("kafka.default.api.timeout.ms", positive, 60_000),
        receive_buffer_bytes=given.one("kafka.receive.buffer.bytes", positive, 4 << 20),
        security=security,
    )


_CLIENT_NAME = re.compile(r"'?\b((?:security|ssl|sasl)_[a-z_]+)\b'?")


def _addresses(text: str) -> tuple[Address, ...]:
    addresses: list[Address] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not host:port")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("names no address")
    return tuple(addresses)
