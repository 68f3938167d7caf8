"""The options, checked; a name that does not exist raises ConfigError, which says the nearest one.

A configuration has Kafka's names in snake_case, and milliseconds. Programs write keywords (`keywords`), in seconds.
"""

import difflib
import logging

# ruff: noqa: RUF009 - `option` makes dataclass fields
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from fencepost.client.config_names import (
    DEFAULT_PARTITIONER,
    ELSEWHERE,
    KEYWORD_SYNONYMS,
    RESET_WORDS,
    SYNONYMS,
    WITHOUT_MEANING,
    keyword_of,
)
from fencepost.client.core.assignors import strategy_names
from fencepost.client.core.partitioner import PartitionFunction
from fencepost.client.core.reset import ResetPolicy, parse_reset
from fencepost.client.errors import ConfigError
from fencepost.client.network.security import SecurityConfig, translated
from fencepost.client.options import (
    Convert,
    addresses,
    boolean,
    choice,
    duration,
    function,
    integer,
    isolation_level,
    option,
    text,
)
from fencepost.client.serializers import (
    DeserializeCall,
    Deserializer,
    SerializeCall,
    Serializer,
)
from fencepost.protocol.compression import Compression
from fencepost.protocol.topics import IsolationLevel

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_NEAR = 0.8
"""How alike two names must be, as difflib counts, for one to be a misspelling of the other."""

_IDEMPOTENT = "fencepost's producers are always idempotent, and idempotence needs acks=all"


def _compression(value: Any) -> Compression:
    if isinstance(value, Compression):
        return value
    try:
        return Compression[str(value).upper()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(codec.name.lower() for codec in Compression)}") from None


def _gzip_level(value: Any) -> int:
    level = integer(-1, 9)(value)
    if not level:
        raise ValueError("must be -1 (zlib's default) or from 1 to 9")
    return int(level)


def _deserializer(what: str) -> Callable[[Any], DeserializeCall]:
    def convert(value: Any) -> DeserializeCall:
        if not (callable(value) or isinstance(value, Deserializer)):
            raise ValueError("must be a function, or have a method deserialize")
        return DeserializeCall(value, what)

    return convert


def _serializer(what: str) -> Callable[[Any], SerializeCall]:
    def convert(value: Any) -> SerializeCall:
        if not callable(value) and not isinstance(value, Serializer):
            raise ValueError("must be a function or have a method serialize(topic, headers, value)")
        return SerializeCall(value, what)

    return convert


def _reset(value: Any) -> ResetPolicy:
    return value if isinstance(value, ResetPolicy) else parse_reset(str(value).lower())


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig(SecurityConfig):
    """What a Client needs: where the cluster is, and how patient to be. Times in milliseconds, sizes in bytes.

    How it proves who it is: SecurityConfig.
    """

    bootstrap_servers: tuple[tuple[str, int], ...] = field(metadata={"convert": addresses})
    client_id: str = option("fencepost", text)
    client_dns_lookup: str = option("use_all_dns_ips", choice("use_all_dns_ips"))
    request_timeout_ms: int = duration(30_000, 1)
    default_api_timeout_ms: int = duration(60_000, 1)
    metadata_max_age_ms: int = duration(300_000, 1)
    metadata_max_idle_ms: int = duration(300_000, 5_000)
    metadata_recovery_strategy: str = option("rebootstrap", choice("rebootstrap", "none"))
    metadata_recovery_rebootstrap_trigger_ms: int = duration(300_000, 0)
    retry_backoff_ms: int = duration(20, 1)
    retry_backoff_max_ms: int = duration(1_000, 1)
    reconnect_backoff_ms: int = duration(50, 0)
    reconnect_backoff_max_ms: int = duration(1_000, 0)
    socket_connection_setup_timeout_ms: int = duration(10_000, 1)
    socket_connection_setup_timeout_max_ms: int = duration(30_000, 1)
    connections_max_idle_ms: int = duration(540_000, 1)
    receive_message_max_bytes: int = option(128 << 20, integer(1 << 10))

    @property
    def servers(self) -> str:
        """The bootstrap servers as one text, for people."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig:
    """What a producer needs. Idempotence and acks=all are not a choice here."""

    acks: str = option("all", choice("all", "-1", why=_IDEMPOTENT))
    enable_idempotence: str = option("true", choice("true", why=_IDEMPOTENT))
    linger_ms: int = duration(0, 0)
    batch_size: int = option(128 << 10, integer(1))
    compression_type: Compression = option(Compression.NONE, _compression)
    buffer_memory: int = option(32 << 20, integer(1 << 10, 2**40))
    max_request_size: int = option(1 << 20, integer(1 << 10))
    delivery_timeout_ms: int = duration(120_000, 1)
    max_in_flight_requests_per_connection: int = option(5, integer(1, 5))
    max_block_ms: int = duration(60_000, 0)
    compression_gzip_level: int = option(-1, _gzip_level)
    compression_lz4_level: int = option(9, integer(1, 17))
    compression_zstd_level: int = option(3, integer(-131_072, 22))
    partitioner: PartitionFunction | None = option(None, function)
    partitioner_ignore_keys: bool = option(False, boolean)
    partitioner_adaptive_partitioning_enable: bool = option(True, boolean)
    partitioner_availability_timeout_ms: int = duration(0, 0)
    key_serializer: SerializeCall | None = option(None, _serializer("key"))
    value_serializer: SerializeCall | None = option(None, _serializer("value"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionalProducerConfig(ProducerConfig):
    """What a transactional producer needs beyond that: how long the coordinator lets a transaction stand open."""

    transaction_timeout_ms: int = duration(60_000, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig:
    """What a consumer needs. Unlike Kafka's own clients it reads committed records from the beginning, unless told."""

    group_id: str | None = option(None, text)
    group_instance_id: str | None = option(None, text)
    isolation_level: IsolationLevel = option(IsolationLevel.READ_COMMITTED, isolation_level)
    auto_offset_reset: ResetPolicy = option(ResetPolicy("earliest"), _reset)
    enable_auto_commit: bool = option(False, boolean)
    auto_commit_interval_ms: int = duration(5_000, 1)
    fetch_min_bytes: int = option(1, integer(0))
    fetch_max_wait_ms: int = duration(500, 0)
    fetch_max_bytes: int = option(50 << 20, integer(1))
    max_partition_fetch_bytes: int = option(4 << 20, integer(1))
    queued_max_bytes: int = option(64 << 20, integer(1 << 10, 2**40))
    client_rack: str = option("", str)
    max_poll_records: int = option(500, integer(1))
    max_poll_interval_ms: int = duration(300_000, 1)
    session_timeout_ms: int = duration(45_000, 1)
    heartbeat_interval_ms: int = duration(3_000, 1)
    partition_assignment_strategy: tuple[str, ...] = option(("range", "cooperative-sticky"), strategy_names)
    group_protocol: str = option("classic", choice("classic", "consumer"))
    group_remote_assignor: str | None = option(None, text)
    on_assigned: Callable[..., Any] | None = option(None, function)
    on_revoked: Callable[..., Any] | None = option(None, function)
    on_lost: Callable[..., Any] | None = option(None, function)
    check_crcs: bool = option(True, boolean)
    key_deserializer: DeserializeCall | None = option(None, _deserializer("key"))
    value_deserializer: DeserializeCall | None = option(None, _deserializer("value"))


ROLES: dict[type, str] = {
    ClientConfig: "fencepost.Client",
    TransactionalProducerConfig: "producers",
    ConsumerConfig: "consumers",
}
"""Who has options, by the name that errors give it."""


def names_of(kind: type) -> list[str]:
    """The options of one role, by their long names."""
    return [entry.name for entry in fields(kind)]


def defaults_of(kind: type) -> dict[str, str]:
    """The defaults of one role as people read them, by keyword."""
    return {keyword_of(entry.name): _shown_default(entry.name, entry.default) for entry in fields(kind)}


def _shown_default(name: str, default: Any) -> str:
    if default is MISSING:
        return "must be given"
    if name.endswith("_ms"):
        return f"{default / 1000:g} s"
    if isinstance(default, Enum):
        default = default.name.lower()
    return repr(str(default) if isinstance(default, ResetPolicy) else default)


def parse(kind: type[T], given: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None) -> T:
    """Keyword arguments -> one checked, frozen configuration.

    `defaults` (Kafka's names, from `Client.from_config`) give way to `given`. Raises ConfigError for an unknown
    keyword and for a value that is not accepted.
    """
    entries = {keyword_of(entry.name): entry for entry in fields(kind)}  # type: ignore[arg-type]
    values = {name: value for name, value in (defaults or {}).items() if keyword_of(name) in entries}
    found = {entry.name: _converted(entry, values) for entry in entries.values() if entry.name in values}
    for keyword, value in given.items():
        if keyword not in entries:
            raise ConfigError(f"unknown option {keyword!r}; {_advice(keyword, kind)}")
        entry = entries[keyword]
        convert = entry.metadata.get("from_keyword", entry.metadata["convert"])
        found[entry.name] = _value(entry, keyword, value, convert)
    return _filled(kind, found)


def parse_kafka(kind: type[T], given: Mapping[str, Any]) -> T:
    """Options by Kafka's names in snake_case, with milliseconds -> one checked, frozen configuration.

    Raises ConfigError as `parse` does.
    """
    wanted = names_of(kind)
    for name in given:
        if name not in wanted:
            raise ConfigError(f"unknown option {name!r}; {_dotted_advice(name, wanted)}")
    entries = fields(kind)  # type: ignore[arg-type]
    return _filled(kind, {entry.name: _converted(entry, given) for entry in entries if entry.name in given})


def _filled(kind: type[T], found: dict[str, Any]) -> T:
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.default is MISSING and entry.name not in found:
            raise ConfigError(f"option {entry.name!r} must be given")
    return kind(**found)


def from_dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's own dotted names (`bootstrap.servers`) -> long snake_case names, their values as they were written.

    What other clients know and this one has no use for is left out, and logged in one warning. Raises ConfigError for
    other names, and for values that no client, producer or consumer takes.
    """
    known = {name for role in ROLES for name in names_of(role)}
    shown = {written.replace(".", "_"): written for written in config}
    long: dict[str, Any] = {}
    left_out: list[str] = []
    for written, value in translated(config).items():
        name = SYNONYMS.get(written, written)
        if name in known:
            long[name] = _carried_over(name, value)
        elif written in WITHOUT_MEANING:
            left_out.append(shown[written])
        else:
            raise ConfigError(f"unknown option {shown[written]!r}; {_dotted_advice(name, known)}")
    if long.get("partitioner") == DEFAULT_PARTITIONER:
        del long["partitioner"]
    for role in ROLES:
        for entry in fields(role):
            if entry.name in long:
                _converted(entry, long)
    if left_out:
        _LOG.warning("ignored options that this client does not have: %s", ", ".join(left_out))
    return long


def _carried_over(name: str, value: Any) -> Any:
    if name == "auto_offset_reset":
        return RESET_WORDS.get(str(value).lower(), value)
    return value


def _converted(entry: Any, values: Mapping[str, Any]) -> Any:
    return _value(entry, entry.name, values[entry.name], entry.metadata["convert"])


def _value(entry: Any, written: str, value: Any, convert: Convert) -> Any:
    if value is None and entry.default is None:
        return None
    try:
        return convert(value)
    except (ValueError, TypeError) as wrong:
        shown = "the value" if entry.metadata.get("secret") else repr(value)
        raise ConfigError(f"option {written!r}: {shown} {wrong}") from None


def _advice(written: str, kind: type) -> str:
    """What to write in the place of a keyword that does not exist, or where the options are documented."""
    wanted = [keyword_of(name) for name in names_of(kind)]
    if written in ELSEWHERE:
        return ELSEWHERE[written]
    kafka = KEYWORD_SYNONYMS.get(written, written)
    keyword = keyword_of(kafka)
    unit = ", in seconds or as a timedelta" if kafka.endswith("_ms") else ""
    if keyword in wanted:
        return f"its name here is {keyword!r}{unit}"
    others = [who for role, who in ROLES.items() if keyword in map(keyword_of, names_of(role))]
    if others:
        return f"{keyword!r} is an option of {' and '.join(others)}"
    near = difflib.get_close_matches(written, wanted, 1, _NEAR)
    if near:
        return f"the nearest is {near[0]!r}"
    return f"see docs/client.md#options or help(fencepost.{kind.__name__.removesuffix('Config')}Options)"


def _dotted_advice(name: str, known: Collection[str]) -> str:
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    near = difflib.get_close_matches(name, sorted(known), 1, _NEAR)
    return f"the nearest is {near[0].replace('_', '.')!r}" if near else "see docs/client.md#options"
