"""The options of clients, producers and consumers: their types, defaults and meanings.

A configuration has Kafka's names in snake_case, and milliseconds. Programs write keywords (`keywords`), in seconds.
"""

# ruff: noqa: RUF009 - `option` makes dataclass fields
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any

from fencepost.client.core.assignors import strategy_names
from fencepost.client.core.partitioner import PartitionFunction
from fencepost.client.network.security import SecurityConfig
from fencepost.client.options import (
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
from fencepost.client.serializers import DeserializeCall, Deserializer, SerializeCall, Serializer
from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES, LARGEST_BYTES, Compression
from fencepost.protocol.reset_policy import ResetPolicy, parse_reset
from fencepost.protocol.topics import IsolationLevel

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
    """A Client's configuration: bootstrap servers, timeouts and limits. Times in milliseconds, sizes in bytes.

    SecurityConfig has the options of TLS and SASL.
    """

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        MISSING, addresses, "Addresses `host:port` of one or more brokers; the client learns the others from them."
    )
    client_id: str = option("fencepost", text, "The name of this client in the broker's logs, metrics and quotas.")
    client_dns_lookup: str = option(
        "use_all_dns_ips", choice("use_all_dns_ips"), "All addresses of a host name are tried; there is no other way."
    )
    request_timeout_ms: int = duration(
        30_000,
        1,
        "How long a request waits for its response. After it, the connection is closed and the request is tried again.",
    )
    default_api_timeout_ms: int = duration(
        60_000, 1, "How long a call is tried again after retriable errors, before it raises RetriableError."
    )
    metadata_max_age_ms: int = duration(300_000, 1, "The age at which the metadata of a topic is fetched again.")
    metadata_max_idle_ms: int = duration(
        300_000, 5_000, "Topics that the client does not use for this long are forgotten."
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        choice("rebootstrap", "none"),
        'If no known broker can be reached: "rebootstrap" asks the bootstrap servers again, "none" does not.',
    )
    metadata_recovery_rebootstrap_trigger_ms: int = duration(
        300_000, 0, "How long brokers may answer no metadata request before the bootstrap servers are asked again."
    )
    retry_backoff_ms: int = duration(20, 1, "The pause before the first retry of a call; it doubles with each retry.")
    retry_backoff_max_ms: int = duration(1_000, 1, "The longest pause between two retries of a call.")
    reconnect_backoff_ms: int = duration(50, 0, "The pause after a failed connection; it doubles with each failure.")
    reconnect_backoff_max_ms: int = duration(1_000, 0, "The longest pause between two connections to one broker.")
    socket_connection_setup_timeout_ms: int = duration(
        10_000, 1, "How long a connection may take to be ready, with TLS and SASL; it doubles with each failure."
    )
    socket_connection_setup_timeout_max_ms: int = duration(
        30_000, 1, "The most that `socket_connection_setup_timeout` grows to."
    )
    connections_max_idle_ms: int = duration(540_000, 1, "A connection without requests for this long is closed.")
    receive_message_max_bytes: int = option(
        128 << 20, integer(1 << 10), "The largest response, in bytes. A larger one ends its connection."
    )

    @property
    def servers(self) -> str:
        """The bootstrap servers as one text, for people."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig:
    """A producer's configuration. Idempotence and acks=all cannot be turned off."""

    acks: str = option(
        "all",
        choice("all", "-1", reason=_IDEMPOTENT),
        "The replicas that acknowledge a record: always all that are in sync.",
    )
    enable_idempotence: str = option(
        "true", choice("true", reason=_IDEMPOTENT), "Retries write no record twice; it cannot be turned off."
    )
    linger_ms: int = duration(0, 0, "How long a batch waits for more records. Inside `batch()` it is at least 5 ms.")
    batch_size: int = option(128 << 10, integer(1), "The size of a batch in bytes, before compression.")
    compression_type: Compression = option(
        Compression.NONE, _compression, 'The codec of batches: "none", "gzip", "snappy", "lz4" or "zstd".'
    )
    buffer_memory: int = option(
        32 << 20,
        integer(1 << 10, 2**40),
        "The most bytes of records that wait to be sent. `send` waits if there is no room.",
    )
    max_request_size: int = option(1 << 20, integer(1 << 10), "The largest record and the largest request, in bytes.")
    delivery_timeout_ms: int = duration(
        120_000, 1, "How long a record may wait for its acknowledgement. After it, DeliveryError is raised."
    )
    max_in_flight_requests_per_connection: int = option(
        5, integer(1, 5), "How many produce requests may be on their way to one broker, from 1 to 5."
    )
    max_block_ms: int = duration(
        60_000, 0, "How long `send` waits for the topic's metadata and for room in the buffer."
    )
    compression_gzip_level: int = option(-1, _gzip_level, "The level of gzip: from 1 to 9, or -1 for zlib's default.")
    compression_lz4_level: int = option(9, integer(1, 17), "The level of lz4, from 1 to 17.")
    compression_zstd_level: int = option(3, integer(-131_072, 22), "The level of zstd, from -131072 to 22.")
    partitioner: PartitionFunction | None = option(
        None,
        function,
        "A function (topic, key, value, partitions) that returns a partition. None: Kafka's own partitioner.",
    )
    partitioner_ignore_keys: bool = option(False, boolean, "Records with a key are spread as records without one.")
    partitioner_adaptive_partitioning_enable: bool = option(
        True, boolean, "Records without a key go rather to partitions whose queues are short (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = duration(
        0, 0, "Records without a key avoid partitions whose broker takes no batch for this long; 0 turns it off."
    )
    key_serializer: SerializeCall | None = option(
        None, _serializer("key"), "What turns keys into bytes: a serializer, or a function. None: keys are bytes."
    )
    value_serializer: SerializeCall | None = option(
        None, _serializer("value"), "What turns values into bytes: a serializer, or a function. None: values are bytes."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionalProducerConfig(ProducerConfig):
    """A transactional producer's configuration: also how long the coordinator keeps a transaction open."""

    transaction_timeout_ms: int = duration(
        60_000, 1, "How long a transaction may stay open before the coordinator aborts it."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerConfig:
    """A consumer's configuration. Unlike Kafka's clients it reads committed records from the beginning by default."""

    group_id: str | None = option(None, text, "The id of the consumer group. None: no group, and no commits.")
    group_instance_id: str | None = option(
        None, text, "The id of a static member. After a restart it takes its partitions back at once (KIP-345)."
    )
    isolation_level: IsolationLevel = option(
        IsolationLevel.READ_COMMITTED,
        isolation_level,
        '"read_committed" gives no records of aborted and open transactions, "read_uncommitted" gives all.',
    )
    auto_offset_reset: ResetPolicy = option(
        ResetPolicy("earliest"),
        _reset,
        'Where to read without a valid offset: "earliest", "latest", "by_duration:P1D", or "none" to raise an error.',
    )
    enable_auto_commit: bool = option(False, boolean, "Commits in the background what the program has finished.")
    auto_commit_interval_ms: int = duration(5_000, 1, "The time between two automatic commits.")
    fetch_min_bytes: int = option(1, integer(0), "The broker answers a fetch as soon as it has this many bytes.")
    fetch_max_wait_ms: int = duration(500, 0, "The longest time that the broker waits for `fetch_min_bytes`.")
    fetch_max_bytes: int = option(50 << 20, integer(1), "The most bytes in one response to a fetch.")
    max_partition_fetch_bytes: int = option(
        4 << 20, integer(1), "The most bytes of one partition in one response to a fetch."
    )
    max_decompressed_bytes: int = option(
        DEFAULT_LIMIT_BYTES,
        integer(1, LARGEST_BYTES),
        "The most bytes to which one batch may decompress. A larger one raises BatchTooLargeError.",
    )
    queued_max_bytes: int = option(
        64 << 20, integer(1 << 10, 2**40), "The most bytes that are fetched ahead, for all partitions together."
    )
    client_rack: str = option(
        "", str, "The rack of this client: a broker may let it read from a replica in the same rack (KIP-392)."
    )
    max_poll_records: int = option(500, integer(1), "The most records in one batch, where the call names no number.")
    max_poll_interval_ms: int = duration(300_000, 1, "A member that asks for no batch for this long leaves its group.")
    session_timeout_ms: int = duration(
        45_000, 1, "A member whose heartbeats are missing for this long is removed (classic protocol)."
    )
    heartbeat_interval_ms: int = duration(3_000, 1, "The time between two heartbeats (classic protocol).")
    partition_assignment_strategy: tuple[str, ...] = option(
        ("range", "cooperative-sticky"),
        strategy_names,
        "The assignors of the classic protocol, the preferred one first: range, roundrobin, ...",
    )
    group_protocol: str = option(
        "classic",
        choice("classic", "consumer"),
        '"classic": a member assigns the partitions. "consumer": the broker does (KIP-848).',
    )
    group_remote_assignor: str | None = option(
        None, text, "The assignor of the broker with the consumer protocol. None: the broker chooses."
    )
    on_assigned: Callable[..., Any] | None = option(
        None, function, "Called with the consumer and its new partitions, before their first record."
    )
    on_revoked: Callable[..., Any] | None = option(
        None, function, "Called with the consumer and the partitions that it must give up, while it still owns them."
    )
    on_lost: Callable[..., Any] | None = option(
        None, function, "Called with the consumer and the partitions that another member may own already."
    )
    check_crcs: bool = option(True, boolean, "Checks the checksum of every batch.")
    key_deserializer: DeserializeCall | None = option(
        None,
        _deserializer("key"),
        "What turns the bytes of keys into objects: a deserializer, or a function. None: keys are bytes.",
    )
    value_deserializer: DeserializeCall | None = option(
        None,
        _deserializer("value"),
        "What turns the bytes of values into objects: a deserializer, or a function. None: values are bytes.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueConfig:
    """A queue's configuration: a member of a share group (KIP-932)."""

    group_id: str = option(MISSING, text, "The id of the share group: its members share the records.")
    max_in_flight: int = option(
        100, integer(1, 1 << 20), "The most records that this member holds and has not acknowledged (KIP-1206)."
    )
    retry_delay_ms: int = duration(
        1_000, 0, "How long a record waits after an error in its block; it doubles with each further delivery."
    )
    retry_delay_max_ms: int = duration(60_000, 0, "The most that `retry_delay` grows to.")
    fetch_min_bytes: int = option(1, integer(0), "The broker answers a fetch as soon as it has this many bytes.")
    fetch_max_wait_ms: int = duration(500, 0, "The longest time that the broker waits for `fetch_min_bytes`.")
    fetch_max_bytes: int = option(50 << 20, integer(1), "The most bytes in one response to a fetch.")
    max_decompressed_bytes: int = option(
        DEFAULT_LIMIT_BYTES,
        integer(1, LARGEST_BYTES),
        "The most bytes to which one batch may decompress. Records of a larger one are released.",
    )
    client_rack: str = option("", str, "The rack of this client, for the group's assignor.")
    check_crcs: bool = option(True, boolean, "Checks the checksum of every batch.")
    key_deserializer: DeserializeCall | None = option(
        None,
        _deserializer("key"),
        "What turns the bytes of keys into objects: a deserializer, or a function. None: keys are bytes.",
    )
    value_deserializer: DeserializeCall | None = option(
        None,
        _deserializer("value"),
        "What turns the bytes of values into objects: a deserializer, or a function. None: values are bytes.",
    )
