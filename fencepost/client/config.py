"""The options: Kafka's names in snake_case, checked; a name that does not exist raises and tells the nearest one."""

import difflib

# ruff: noqa: RUF009 - `_option` makes dataclass fields
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from fencepost.client.errors import ConfigError
from fencepost.protocol.compression import Compression
from fencepost.protocol.topics import IsolationLevel

T = TypeVar("T")
Convert = Callable[[Any], Any]

# Short names for what is written most; a factor turns seconds into milliseconds.
_SHORT: dict[str, tuple[str, int | None]] = {
    "linger": ("linger_ms", 1000),
    "timeout": ("transaction_timeout_ms", 1000),
    "compression": ("compression_type", None),
    "isolation": ("isolation_level", None),
    "group": ("group_id", None),
    "serializer": ("value_serializer", None),
    "deserializer": ("value_deserializer", None),
}


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("must be true or false")


def _integer(low: int, high: int = 2**31 - 1) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str | float):
            raise ValueError("must be a whole number")
        number = int(value)
        if number != float(value) or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return convert


def _choice(*allowed: str) -> Convert:
    def convert(value: Any) -> str:
        text = str(value).lower()
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return convert


def _compression(value: Any) -> Compression:
    if isinstance(value, Compression):
        return value
    try:
        return Compression[str(value).upper()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(codec.name.lower() for codec in Compression)}") from None


def _isolation(value: Any) -> IsolationLevel:
    if isinstance(value, IsolationLevel):
        return value
    try:
        return IsolationLevel[str(value).upper()]
    except KeyError:
        raise ValueError("must be read_committed or read_uncommitted") from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a string that is not empty")
    return value


def _callable(value: Any) -> Any:
    if not callable(value):
        raise ValueError("must be a function")
    return value


def _addresses(value: Any) -> tuple[tuple[str, int], ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    found = []
    for part in parts:
        host, _, port = str(part).strip().rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{part!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("names no server")
    return tuple(found)


def _option(default: Any, convert: Convert) -> Any:
    return field(default=default, metadata={"convert": convert})


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """What a Client needs: where the cluster is, and how patient to be. Times in milliseconds, sizes in bytes."""

    bootstrap_servers: tuple[tuple[str, int], ...] = field(metadata={"convert": _addresses})
    client_id: str = _option("fencepost", _text)
    request_timeout_ms: int = _option(30_000, _integer(1))
    default_api_timeout_ms: int = _option(60_000, _integer(1))
    metadata_max_age_ms: int = _option(300_000, _integer(1))
    retry_backoff_ms: int = _option(20, _integer(1))
    retry_backoff_max_ms: int = _option(1_000, _integer(1))
    socket_connection_setup_timeout_ms: int = _option(10_000, _integer(1))
    receive_message_max_bytes: int = _option(128 << 20, _integer(1 << 10))
    security_protocol: str = _option("plaintext", _choice("plaintext"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig:
    """What a producer needs. Idempotence and acks=all are not a choice here."""

    acks: str = _option("all", _choice("all", "-1"))
    enable_idempotence: str = _option("true", _choice("true"))
    linger_ms: int = _option(0, _integer(0))
    batch_size: int = _option(128 << 10, _integer(1))
    compression_type: Compression = _option(Compression.NONE, _compression)
    buffer_memory: int = _option(32 << 20, _integer(1 << 10, 2**40))
    max_request_size: int = _option(1 << 20, _integer(1 << 10))
    delivery_timeout_ms: int = _option(120_000, _integer(1))
    max_in_flight_requests_per_connection: int = _option(5, _integer(1, 5))
    key_serializer: Callable[[Any], bytes] | None = _option(None, _callable)
    value_serializer: Callable[[Any], bytes] | None = _option(None, _callable)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionalProducerConfig(ProducerConfig):
    """What a transactional producer needs beyond that: how long the coordinator lets a transaction stand open."""

    transaction_timeout_ms: int = _option(60_000, _integer(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig:
    """What a consumer needs. Unlike Kafka's own clients it reads committed records from the beginning, unless told."""

    group_id: str | None = _option(None, _text)
    group_instance_id: str | None = _option(None, _text)
    isolation_level: IsolationLevel = _option(IsolationLevel.READ_COMMITTED, _isolation)
    auto_offset_reset: str = _option("earliest", _choice("earliest", "latest", "none"))
    enable_auto_commit: bool = _option(False, _boolean)
    auto_commit_interval_ms: int = _option(5_000, _integer(1))
    fetch_min_bytes: int = _option(1, _integer(0))
    fetch_max_wait_ms: int = _option(500, _integer(0))
    fetch_max_bytes: int = _option(50 << 20, _integer(1))
    max_partition_fetch_bytes: int = _option(1 << 20, _integer(1))
    max_poll_records: int = _option(500, _integer(1))
    max_poll_interval_ms: int = _option(300_000, _integer(1))
    session_timeout_ms: int = _option(45_000, _integer(1))
    heartbeat_interval_ms: int = _option(3_000, _integer(1))
    partition_assignment_strategy: str = _option("range", _choice("range", "roundrobin"))
    check_crcs: bool = _option(True, _boolean)
    key_deserializer: Callable[[bytes], Any] | None = _option(None, _callable)
    value_deserializer: Callable[[bytes], Any] | None = _option(None, _callable)


ROLES: tuple[type, ...] = (ClientConfig, TransactionalProducerConfig, ConsumerConfig)


def names_of(kind: type) -> list[str]:
    """The options of one role, by their long names."""
    return [entry.name for entry in fields(kind)]


def parse(kind: type[T], given: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None) -> T:
    """Options as written by the user -> one checked, frozen value.

    `defaults` (long names) come from `Client.from_config` and give way to `given`.
    Raises ConfigError for an unknown name, a value out of range, or an option given twice.
    """
    wanted = names_of(kind)
    values: dict[str, Any] = {name: value for name, value in (defaults or {}).items() if name in wanted}
    seen: set[str] = set()
    for written, value in given.items():
        name, factor = _SHORT.get(written, (written, None))
        if name not in wanted:
            raise ConfigError(f"unknown option {written!r}{_nearest(written, wanted)}")
        if name in seen:
            raise ConfigError(f"option {name!r} is given twice (as {written!r}, too)")
        seen.add(name)
        values[name] = round(value * factor) if factor and isinstance(value, int | float) else value
    return kind(**{entry.name: _converted(entry, values) for entry in fields(kind)})  # type: ignore[arg-type]


def from_dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's own dotted names (`bootstrap.servers`) -> long snake_case names; unknown ones raise ConfigError."""
    known = {name for role in ROLES for name in names_of(role)}
    long: dict[str, Any] = {}
    for dotted, value in config.items():
        name = dotted.replace(".", "_")
        if name not in known:
            raise ConfigError(f"unknown option {dotted!r}{_nearest(name, sorted(known), dots=True)}")
        long[name] = value
    return long


def _converted(entry: Any, values: Mapping[str, Any]) -> Any:
    if entry.name not in values:
        if entry.default is MISSING:
            raise ConfigError(f"option {entry.name!r} must be given")
        return entry.default
    value = values[entry.name]
    if value is None and entry.default is None:
        return None
    try:
        return entry.metadata["convert"](value)
    except (ValueError, TypeError) as wrong:
        raise ConfigError(f"option {entry.name!r}: {value!r} {wrong}") from None


def _nearest(written: str, wanted: list[str], *, dots: bool = False) -> str:
    short = [name for name, (long, _) in _SHORT.items() if long in wanted]
    close = difflib.get_close_matches(written, wanted + ([] if dots else short), n=1, cutoff=0.4)
    if not close:
        return ""
    return f"; the nearest is {(close[0].replace('_', '.') if dots else close[0])!r}"
