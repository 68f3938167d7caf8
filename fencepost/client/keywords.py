"""The options as keyword arguments, for editors and type checkers.

They are the fields of the configurations in `config`, under the names that `keyword_of` gives them. Times are seconds,
as a number or a `datetime.timedelta`; sizes are bytes. `config` says what each option means.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, Required, TypedDict, get_type_hints

from fencepost.client.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    QueueConfig,
    TransactionalProducerConfig,
)
from fencepost.client.config_parsing import defaults_of, meanings_of
from fencepost.client.core.partitioner import PartitionFunction
from fencepost.client.network.security import TokenProvider
from fencepost.protocol.compression import Compression
from fencepost.protocol.topics import IsolationLevel, TopicPartition

Duration = float | timedelta
"""Seconds, or a timedelta."""
Isolation = IsolationLevel | Literal["read_committed", "read_uncommitted"]
CompressionName = Compression | Literal["none", "gzip", "snappy", "lz4", "zstd"]
SecurityProtocol = Literal[
    "plaintext", "ssl", "sasl_plaintext", "sasl_ssl", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
AssignorName = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
OffsetPlace = Literal["earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"]
"""For `Admin.list_offsets`."""
Overflow = Literal["error", "spill"]
"""What `Consumer.transactions` does beyond `max_bytes`."""
RebalanceCallback = Callable[[Any, frozenset[TopicPartition]], Awaitable[None]]
"""`await on_revoked(consumer, partitions)`."""
BlockingRebalanceCallback = Callable[[Any, frozenset[TopicPartition]], object]
"""`on_revoked(consumer, partitions)`."""


class ClientOptions(TypedDict, total=False):
    """Options of `fencepost.Client`."""

    client_id: str
    client_dns_lookup: Literal["use_all_dns_ips"]
    request_timeout: Duration
    default_api_timeout: Duration
    metadata_max_age: Duration
    metadata_max_idle: Duration
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger: Duration
    retry_backoff: Duration
    retry_backoff_max: Duration
    reconnect_backoff: Duration
    reconnect_backoff_max: Duration
    socket_connection_setup_timeout: Duration
    socket_connection_setup_timeout_max: Duration
    connections_max_idle: Duration
    receive_message_max_bytes: int
    security_protocol: SecurityProtocol
    ssl_cafile: str | None
    ssl_ca_pem: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_certificate_pem: str | None
    ssl_key_pem: str | None
    ssl_key_password: str | None
    ssl_check_hostname: bool
    ssl_verify: bool
    ssl_ciphers: str | None
    ssl_enabled_protocols: str | Iterable[str]
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


class ProducerOptions(TypedDict, total=False):
    """Options of `Client.producer`."""

    acks: Literal["all", "-1", -1]
    enable_idempotence: Literal[True]
    linger: Duration
    batch_size: int
    compression: CompressionName
    buffer_memory: int
    max_request_size: int
    delivery_timeout: Duration
    max_in_flight_requests_per_connection: int
    max_block: Duration
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner: PartitionFunction | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout: Duration


class TransactionalProducerOptions(ProducerOptions, total=False):
    """Options of `Client.transactional_producer` and `Client.two_phase_producer`."""

    transaction_timeout: Duration


class _ReadingOptions(TypedDict, total=False):
    """Options of consumers, without the callbacks."""

    group: str | None
    group_instance_id: str | None
    isolation: Isolation
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval: Duration
    fetch_min_bytes: int
    fetch_max_wait: Duration
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_decompressed_bytes: int
    queued_max_bytes: int
    client_rack: str
    max_poll_records: int
    max_poll_interval: Duration
    session_timeout: Duration
    heartbeat_interval: Duration
    partition_assignment_strategy: AssignorName | Iterable[AssignorName]
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    check_crcs: bool


class ConsumerOptions(_ReadingOptions, total=False):
    """Options of `Client.consumer`."""

    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    on_lost: RebalanceCallback | None


class BlockingConsumerOptions(_ReadingOptions, total=False):
    """Options of `fencepost.sync.Client.consumer`: its callbacks are plain functions."""

    on_assigned: BlockingRebalanceCallback | None
    on_revoked: BlockingRebalanceCallback | None
    on_lost: BlockingRebalanceCallback | None


class QueueOptions(TypedDict, total=False):
    """Options of `Client.queue`."""

    group: Required[str]
    max_in_flight: int
    retry_delay: Duration
    retry_delay_max: Duration
    fetch_min_bytes: int
    fetch_max_wait: Duration
    fetch_max_bytes: int
    max_decompressed_bytes: int
    client_rack: str
    check_crcs: bool


def _list_options(options: type, config: type) -> None:
    """Let `help` list the keywords with their meanings: of a TypedDict it shows its docstring, and little else."""
    defaults, meanings = defaults_of(config), meanings_of(config)
    lines = "\n".join(
        f"    {name} (default {defaults[name]})\n        {meanings[name]}" for name in get_type_hints(options)
    )
    options.__doc__ = f"{options.__doc__}\n\nTimes are seconds, or a timedelta; sizes are bytes.\n\n{lines}\n"


_list_options(ClientOptions, ClientConfig)
_list_options(ProducerOptions, ProducerConfig)
_list_options(TransactionalProducerOptions, TransactionalProducerConfig)
_list_options(ConsumerOptions, ConsumerConfig)
_list_options(BlockingConsumerOptions, ConsumerConfig)
_list_options(QueueOptions, QueueConfig)
