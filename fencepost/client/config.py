"""The options: Kafka's names in snake_case, checked; a name that does not exist raises and tells the nearest one."""

import difflib
import logging

# ruff: noqa: RUF009 - `option` makes dataclass fields
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from fencepost.client.config_names import (
    DEFAULT_PARTITIONER,
    ELSEWHERE,
    RESET_WORDS,
    SYNONYMS,
    WITHOUT_MEANING,
)
from fencepost.client.core.assignors import strategy_names
from fencepost.client.core.partitioner import PartitionFunction
from fencepost.client.core.reset import ResetPolicy, parse_reset
from fencepost.client.errors import ConfigError
from fencepost.client.network.security import WRITTEN, SecurityConfig, translated
from fencepost.client.options import addresses, boolean, choice, function, integer, option, text
from fencepost.client.serializers import (
    AnySerializer,
    DeserializeCall,
    Deserializer,
    Serializer,
    deserialize_call,
)
from fencepost.protocol.compression import Compression
from fencepost.protocol.topics import IsolationLevel

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_NEAR = 0.8
"""How alike two names must be, as difflib counts, for one to be a misspelling of the other."""

# Short names for what is written most; a factor turns seconds into milliseconds.
_SHORT: dict[str, tuple[str, int | None]] = {
    **{written: (name, None) for written, name in WRITTEN.items()},
    "linger": ("linger_ms", 1000),
    "timeout": ("transaction_timeout_ms", 1000),
    "compression": ("compression_type", None),
    "isolation": ("isolation_level", None),
    "group": ("group_id", None),
}

_IDEMPOTENT = "producers are always idempotent here, and that needs acks=all"


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


def _gzip_level(value: Any) -> int:
    level = integer(-1, 9)(value)
    if not level:
        raise ValueError("must be -1 (zlib's default) or from 1 to 9")
    return int(level)


def _deserializer(what: str) -> Callable[[Any], DeserializeCall]:
    def convert(value: Any) -> DeserializeCall:
        if not (callable(value) or isinstance(value, Deserializer)):
            raise ValueError("must be a function, or have a method deserialize")
        call = deserialize_call(value, what)
        assert call is not None
        return call

    return convert


def _serializer(value: Any) -> Any:
    if not callable(value) and not isinstance(value, Serializer):
        raise ValueError("must be a function or have a method serialize(topic, headers, value)")
    return value


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
    request_timeout_ms: int = option(30_000, integer(1))
    default_api_timeout_ms: int = option(60_000, integer(1))
    metadata_max_age_ms: int = option(300_000, integer(1))
    metadata_max_idle_ms: int = option(300_000, integer(5_000))
    metadata_recovery_strategy: str = option("rebootstrap", choice("rebootstrap", "none"))
    metadata_recovery_rebootstrap_trigger_ms: int = option(300_000, integer(0))
    retry_backoff_ms: int = option(20, integer(1))
    retry_backoff_max_ms: int = option(1_000, integer(1))
    reconnect_backoff_ms: int = option(50, integer(0))
    reconnect_backoff_max_ms: int = option(1_000, integer(0))
    socket_connection_setup_timeout_ms: int = option(10_000, integer(1))
    socket_connection_setup_timeout_max_ms: int = option(30_000, integer(1))
    connections_max_idle_ms: int = option(540_000, integer(1))
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
    linger_ms: int = option(0, integer(0))
    batch_size: int = option(128 << 10, integer(1))
    compression_type: Compression = option(Compression.NONE, _compression)
    buffer_memory: int = option(32 << 20, integer(1 << 10, 2**40))
    max_request_size: int = option(1 << 20, integer(1 << 10))
    delivery_timeout_ms: int = option(120_000, integer(1))
    max_in_flight_requests_per_connection: int = option(5, integer(1, 5))
    max_block_ms: int = option(60_000, integer(0))
    compression_gzip_level: int = option(-1, _gzip_level)
    compression_lz4_level: int = option(9, integer(1, 17))
    compression_zstd_level: int = option(3, integer(-131_072, 22))
    partitioner: PartitionFunction | None = option(None, function)
    partitioner_ignore_keys: bool = option(False, boolean)
    partitioner_adaptive_partitioning_enable: bool = option(True, boolean)
    partitioner_availability_timeout_ms: int = option(0, integer(0))
    key_serializer: AnySerializer[Any] | None = option(None, _serializer)
    value_serializer: AnySerializer[Any] | None = option(None, _serializer)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionalProducerConfig(ProducerConfig):
    """What a transactional producer needs beyond that: how long the coordinator lets a transaction stand open."""

    transaction_timeout_ms: int = option(60_000, integer(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig:
    """What a consumer needs. Unlike Kafka's own clients it reads committed records from the beginning, unless told."""

    group_id: str | None = option(None, text)
    group_instance_id: str | None = option(None, text)
    isolation_level: IsolationLevel = option(IsolationLevel.READ_COMMITTED, _isolation)
    auto_offset_reset: ResetPolicy = option(ResetPolicy("earliest"), _reset)
    enable_auto_commit: bool = option(False, boolean)
    auto_commit_interval_ms: int = option(5_000, integer(1))
    fetch_min_bytes: int = option(1, integer(0))
    fetch_max_wait_ms: int = option(500, integer(0))
    fetch_max_bytes: int = option(50 << 20, integer(1))
    max_partition_fetch_bytes: int = option(4 << 20, integer(1))
    queued_max_bytes: int = option(64 << 20, integer(1 << 10, 2**40))
    client_rack: str = option("", str)
    max_poll_records: int = option(500, integer(1))
    max_poll_interval_ms: int = option(300_000, integer(1))
    session_timeout_ms: int = option(45_000, integer(1))
    heartbeat_interval_ms: int = option(3_000, integer(1))
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
            raise ConfigError(f"unknown option {written!r}; {_advice(written, kind)}")
        if name in seen:
            raise ConfigError(f"option {name!r} is given twice (as {written!r}, too)")
        seen.add(name)
        values[name] = round(value * factor) if factor and isinstance(value, int | float) else value
    return kind(**{entry.name: _converted(entry, values) for entry in fields(kind)})  # type: ignore[arg-type]


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
        _LOG.warning("options that have no meaning for this client were left out: %s", ", ".join(left_out))
    return long


def _carried_over(name: str, value: Any) -> Any:
    if name == "auto_offset_reset":
        return RESET_WORDS.get(str(value).lower(), value)
    return value


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
        shown = "the value" if entry.metadata.get("secret") else repr(value)
        raise ConfigError(f"option {entry.name!r}: {shown} {wrong}") from None


def _advice(written: str, kind: type) -> str:
    """What to write in the place of an option that does not exist, or where the options are documented."""
    wanted = names_of(kind)
    name = SYNONYMS.get(written, _SHORT.get(written, (written, None))[0])
    if written in ELSEWHERE:
        return ELSEWHERE[written]
    if name in wanted:
        return f"its name here is {name!r}"
    others = [who for role, who in ROLES.items() if name in names_of(role)]
    if others:
        return f"{name!r} is an option of {' and '.join(others)}"
    near = difflib.get_close_matches(
        written, wanted + [s for s, (long, _) in _SHORT.items() if long in wanted], 1, _NEAR
    )
    if near:
        return f"the nearest is {near[0]!r}"
    return f"see docs/client.md#options or help(fencepost.client.config.{kind.__name__})"


def _dotted_advice(name: str, known: Collection[str]) -> str:
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    near = difflib.get_close_matches(name, sorted(known), 1, _NEAR)
    return f"the nearest is {near[0].replace('_', '.')!r}" if near else "see docs/client.md#options"
