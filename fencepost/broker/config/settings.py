"""The broker's settings under Kafka's names, group by group: type, default, bounds, meaning."""

import sys
from dataclasses import dataclass
from typing import Literal

from fencepost.broker.config.fields import LONG_MAX, Kind, Update, setting
from fencepost.broker.config.listeners import addresses_problem, protocol_map_problem
from fencepost.broker.security.security_protocol import SecurityProtocol

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
INT_MAX = 2**31 - 1
DOUBLE_MAX = sys.float_info.max
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
READ_COMMITTED_FILTERS = ("broker", "client")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_DYNAMIC = Update.CLUSTER_WIDE


def gzip_level_problem(level: int) -> str | None:
    """What is wrong with a gzip level (KIP-390: -1 for the codec's own default, or 1 to 9), or None."""
    return None if level == -1 or 1 <= level <= 9 else f"{level} is not a gzip level, expected -1 or 1 to 9"


def _retention_problem(value: int) -> str | None:
    return None if value == -1 or value > 0 else f"{value} is out of range, expected -1 (for ever) or more than 0"


def _one_directory(paths: tuple[str, ...]) -> str | None:
    if len(paths) == 1 and paths[0]:
        return None
    return f"{','.join(paths)!r} must name exactly one directory: this broker keeps all logs together"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LogSettings:
    """The defaults of topic settings, and the upkeep of the logs."""

    log_dirs: tuple[str, ...] = setting(
        Kind.LIST, ("fencepost-data",), "The directory of the logs and the metadata.", check=_one_directory
    )
    num_partitions: int = setting(
        Kind.INT, 1, "Partitions of a topic that is created without a count.", low=1, high=100_000
    )
    auto_create_topics_enable: bool = setting(
        Kind.BOOLEAN, True, "Whether asking for an unknown topic's metadata may create it."
    )
    delete_topic_enable: bool = setting(Kind.BOOLEAN, True, "Whether topics can be deleted at all.")
    default_replication_factor: int = setting(
        Kind.INT, 1, "Replicas of a topic that is created without a factor; one node holds one.", low=1, high=1
    )
    min_insync_replicas: int = setting(
        Kind.INT,
        1,
        "No effect here: one replica is all there are. Replicas that must have a batch before acks=all is answered.",
        low=1,
        update=_DYNAMIC,
    )
    unclean_leader_election_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "No effect here: one replica leads always. Whether a replica outside the in-sync set may lead.",
        update=_DYNAMIC,
    )
    message_max_bytes: int = setting(Kind.INT, 1_048_588, "The largest record batch taken.", low=0, update=_DYNAMIC)
    message_max_decompressed_bytes: int = setting(
        Kind.INT, 128 << 20, "The most bytes a batch may decompress to where its records must be read.", low=1 << 20,
        high=INT_MAX, ours=True, update=_DYNAMIC,
    )  # fmt: skip
    compression_type: str = setting(
        Kind.STRING, "producer", "The codec of stored batches; producer keeps the sender's.", choices=COMPRESSION_TYPES,
        update=_DYNAMIC,
    )  # fmt: skip
    compression_gzip_level: int = setting(
        Kind.INT, -1, "Level of gzip where the broker compresses.", check=gzip_level_problem, update=_DYNAMIC
    )
    compression_lz4_level: int = setting(
        Kind.INT, 9, "Level of lz4 where the broker compresses.", low=1, high=17, update=_DYNAMIC
    )
    compression_zstd_level: int = setting(
        Kind.INT, 3, "Level of zstd where the broker compresses.", low=-131_072, high=22, update=_DYNAMIC
    )
    read_committed_filter: str = setting(
        Kind.STRING, "client", "Who leaves aborted records out of read_committed fetches: the client, as in Kafka, or"
        " the broker, which then sends less.",
        choices=READ_COMMITTED_FILTERS, update=_DYNAMIC, ours=True,
    )  # fmt: skip
    read_committed_filter_client_ids: tuple[str, ...] = setting(
        Kind.LIST, (), "Values of client.id for which the broker leaves aborted records out, whatever the listener and"
        " the topic say.",
        ours=True,
    )  # fmt: skip
    log_segment_bytes: int = setting(
        Kind.INT, 1 << 30, "Size at which a segment is closed.", low=1 << 20, update=_DYNAMIC
    )
    log_roll_ms: int | None = setting(
        Kind.LONG, None, "Age at which a segment is closed.", low=1, nullable=True, update=_DYNAMIC
    )
    log_roll_hours: int = setting(Kind.INT, 168, "As log.roll.ms, in hours; used where that is not given.", low=1)
    log_roll_jitter_ms: int | None = setting(
        Kind.LONG,
        None,
        "The most that is taken off log.roll.ms, for each segment another part of it.",
        low=0,
        nullable=True,
        update=_DYNAMIC,
    )
    log_roll_jitter_hours: int = setting(Kind.INT, 0, "As log.roll.jitter.ms, in hours.", low=0)
    log_retention_bytes: int = setting(
        Kind.LONG, -1, "Size at which a partition's oldest segments go; -1 for no bound.", update=_DYNAMIC
    )
    log_retention_ms: int | None = setting(
        Kind.LONG,
        None,
        "Age at which segments go; -1 for never.",
        nullable=True,
        check=_retention_problem,
        update=_DYNAMIC,
    )
    log_retention_minutes: int | None = setting(
        Kind.INT,
        None,
        "As log.retention.ms, in minutes; used where that is not given.",
        nullable=True,
        check=_retention_problem,
    )
    log_retention_hours: int = setting(
        Kind.INT, 168, "As log.retention.ms, in hours; used where neither is given.", check=_retention_problem
    )
    log_retention_check_interval_ms: int = setting(Kind.LONG, 300_000, "How often old segments are looked for.", low=1)
    log_retention_spares_open_transactions: bool = setting(
        Kind.BOOLEAN, True, "Whether data from the start of an open transaction on outlives its time (Kafka: false).",
        ours=True, update=_DYNAMIC,
    )  # fmt: skip
    log_segment_delete_delay_ms: int = setting(
        Kind.LONG, 60_000, "How long the files of removed segments and deleted topics stay.", low=0, update=_DYNAMIC
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        Kind.LIST, ("delete",), "What becomes of old data.", choices=("compact", "delete"), update=_DYNAMIC
    )
    log_local_retention_bytes: int = setting(
        Kind.LONG, -2, "No effect here: there is no tiered storage. As local.retention.bytes.", low=-2, update=_DYNAMIC
    )
    log_local_retention_ms: int = setting(
        Kind.LONG, -2, "No effect here: there is no tiered storage. As local.retention.ms.", low=-2, update=_DYNAMIC
    )
    log_index_size_max_bytes: int = setting(
        Kind.INT, 10 << 20, "The largest offset index of a segment.", low=4, update=_DYNAMIC
    )
    log_index_interval_bytes: int = setting(
        Kind.INT, 4096, "Bytes of log between two index entries.", low=0, update=_DYNAMIC
    )
    log_flush_interval_messages: int = setting(
        Kind.LONG,
        LONG_MAX,
        "No effect here, `durability` decides. Records after which a log is flushed (durability=os).",
        low=1,
        update=_DYNAMIC,
    )
    log_flush_interval_ms: int | None = setting(
        Kind.LONG,
        None,
        "No effect here, `durability` decides. Age at which unflushed data is flushed (durability=os).",
        nullable=True,
        update=_DYNAMIC,
    )
    log_flush_scheduler_interval_ms: int = setting(
        Kind.LONG, LONG_MAX, "No effect here, `durability` decides. How often the need to flush is looked at."
    )
    log_preallocate: bool = setting(
        Kind.BOOLEAN,
        False,
        "No effect here: room is reserved as it is needed. Whether segments get their full size first.",
        update=_DYNAMIC,
    )
    log_message_timestamp_type: str = setting(
        Kind.STRING, "CreateTime", "Whose clock stamps records.", choices=TIMESTAMP_TYPES, update=_DYNAMIC
    )
    log_message_timestamp_before_max_ms: int = setting(
        Kind.LONG, LONG_MAX, "How old a record's timestamp may be (KIP-937).", low=0, update=_DYNAMIC
    )
    log_message_timestamp_after_max_ms: int = setting(
        Kind.LONG, HOUR_MS, "How far ahead a record's timestamp may be (KIP-937).", low=0, update=_DYNAMIC
    )
    log_cleaner_enable: bool = setting(Kind.BOOLEAN, True, "Whether logs are compacted at all.")
    log_cleaner_threads: int = setting(
        Kind.INT, 1, "How many logs are compacted at a time, each in a quarter of a core.", low=1, update=_DYNAMIC
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Kind.DOUBLE, DOUBLE_MAX, "The most that compactions read and write together.", low=1, update=_DYNAMIC
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Kind.LONG,
        128 << 20,
        "Memory for the keys of all compactions under way, 24 bytes each.",
        low=1 << 10,
        update=_DYNAMIC,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        Kind.DOUBLE, 0.9, "How full that memory may become; more keys take another pass.", low=0, high=1,
        update=_DYNAMIC,
    )  # fmt: skip
    log_cleaner_backoff_ms: int = setting(
        Kind.LONG, 15_000, "How long the cleaner rests when nothing is due.", low=1, update=_DYNAMIC
    )
    log_cleaner_delete_retention_ms: int = setting(
        Kind.LONG, DAY_MS, "How long tombstones and markers outlive compaction.", low=0, update=_DYNAMIC
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Kind.LONG, 0, "Age below which records are not compacted.", low=0, update=_DYNAMIC
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Kind.LONG, LONG_MAX, "Age at which records must be compacted.", low=1, update=_DYNAMIC
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Kind.DOUBLE, 0.5, "Share of uncompacted data that starts a compaction.", low=0, high=1, update=_DYNAMIC
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CoordinatorSettings:
    """Groups and their offsets, transactions and producer ids."""

    offset_metadata_max_bytes: int = setting(
        Kind.INT, 4096, "The longest text that goes with a committed offset.", low=0
    )
    offsets_retention_minutes: int = setting(Kind.INT, 10_080, "How long an empty group's offsets are kept.", low=1)
    offsets_retention_check_interval_ms: int = setting(Kind.LONG, 600_000, "How often they are looked for.", low=1)
    offsets_topic_num_partitions: int = setting(
        Kind.INT, 50, "Partitions of __consumer_offsets; fixed once it exists.", low=1, high=10_000
    )
    offsets_topic_segment_bytes: int = setting(Kind.INT, 100 << 20, "Segment size of __consumer_offsets.", low=1 << 20)
    offsets_topic_replication_factor: int = setting(Kind.SHORT, 1, "Replicas of __consumer_offsets.", low=1, high=1)
    group_min_session_timeout_ms: int = setting(Kind.INT, 6000, "The shortest session a member may ask for.", low=1)
    group_max_session_timeout_ms: int = setting(Kind.INT, 1_800_000, "The longest session a member may ask for.", low=1)
    group_initial_rebalance_delay_ms: int = setting(
        Kind.INT, 0, "How long an empty group waits for company before its first assignment (Kafka: 3000).", low=0
    )
    group_max_size: int = setting(Kind.INT, INT_MAX, "The most members a group may have.", low=1)
    transaction_max_timeout_ms: int = setting(
        Kind.INT, 900_000, "The longest a transaction may ask to last.", low=1, update=_DYNAMIC
    )
    transaction_state_log_num_partitions: int = setting(
        Kind.INT, 50, "Partitions of __transaction_state; fixed once it exists.", low=1, high=10_000
    )
    transaction_state_log_segment_bytes: int = setting(Kind.INT, 100 << 20, "Its segment size.", low=1 << 20)
    transaction_state_log_replication_factor: int = setting(Kind.SHORT, 1, "Its replicas.", low=1, high=1)
    transaction_state_log_min_isr: int = setting(Kind.INT, 1, "Its min.insync.replicas.", low=1, high=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Kind.INT, 10_000, "How often transactions past their timeout are aborted.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Kind.INT, 3_600_000, "How often unused transactional ids are looked for.", low=1
    )
    transaction_partition_verification_enable: bool = setting(
        Kind.BOOLEAN, True, "Whether a write is checked against its open transaction (KIP-890).", update=_DYNAMIC
    )
    transaction_two_phase_commit_enable: bool = setting(
        Kind.BOOLEAN, False, "Whether a transaction may wait without a timeout for an outside coordinator (KIP-939).",
        update=_DYNAMIC,
    )  # fmt: skip
    principal_max_transactional_ids: int = setting(
        Kind.INT, -1, "Transactional ids of one principal; more are refused with POLICY_VIOLATION. -1 for no bound.",
        low=-1, ours=True, update=_DYNAMIC,
    )  # fmt: skip
    principal_max_open_transactions: int = setting(
        Kind.INT, -1, "Open transactions of one principal; more are refused with POLICY_VIOLATION. -1 for no bound.",
        low=-1, ours=True, update=_DYNAMIC,
    )  # fmt: skip
    principal_max_producer_ids: int = setting(
        Kind.INT, -1,
        "Producer ids that one principal may get, without a transactional id, within producer.id.expiration.ms; more"
        " are refused with POLICY_VIOLATION. -1 for no bound.",
        low=-1, ours=True, update=_DYNAMIC,
    )  # fmt: skip
    transaction_hanging_check_interval_ms: int = setting(
        Kind.INT, 60_000, "How often partitions are searched for hanging transactions.", low=1, ours=True
    )
    transaction_hanging_abort: bool = setting(
        Kind.BOOLEAN, False, "Whether a transaction that is proved to hang is aborted, or only reported.", ours=True,
        update=_DYNAMIC,
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        Kind.INT, 604_800_000, "How long an unused id is kept.", low=1, update=_DYNAMIC
    )
    producer_id_expiration_ms: int = setting(
        Kind.INT, 86_400_000, "How long a partition remembers an idle producer (KIP-854).", low=1, update=_DYNAMIC
    )
    producer_ids_max: int = setting(
        Kind.INT, 100_000, "The most producers one partition remembers; those idle longest go first.", low=1, ours=True
    )
    producer_id_expiration_check_interval_ms: int = setting(
        Kind.INT, 600_000, "How often idle producers are looked for.", low=1
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NodeSettings:
    """The node's identity, its listener, its bounds and its durability."""

    node_id: int = setting(Kind.INT, 1, "The number of this node.", low=0)
    cluster_id: str | None = setting(
        Kind.STRING, None, "The cluster's id; made at the first start where not given.", nullable=True, ours=True
    )
    broker_rack: str | None = setting(Kind.STRING, None, "The rack this node tells clients.", nullable=True)
    listeners: tuple[str, ...] = setting(
        Kind.LIST, ("PLAINTEXT://:9092",), "Where to listen: NAME://HOST:PORT, separated by commas; port 0 picks one.",
        check=addresses_problem,
    )  # fmt: skip
    advertised_listeners: tuple[str, ...] | None = setting(
        Kind.LIST, None,
        "The address that clients of each listener use: NAME://HOST:PORT. Not set: the address they connected to.",
        nullable=True, check=addresses_problem,
    )  # fmt: skip
    listener_security_protocol_map: str | None = setting(
        Kind.STRING, None,
        "The security protocol of each listener, NAME:PROTOCOL. Not set: each listener has its protocol's name.",
        nullable=True, check=protocol_map_problem,
    )  # fmt: skip
    inter_broker_listener_name: str | None = setting(
        Kind.STRING, None, "The listener for other brokers. It must exist; there are no other brokers.", nullable=True
    )
    security_inter_broker_protocol: str = setting(
        Kind.STRING, "PLAINTEXT", "Names the listener for other brokers by its protocol.",
        choices=tuple(SecurityProtocol.__members__),
    )  # fmt: skip
    unstable_api_versions_enable: bool = setting(
        Kind.BOOLEAN, False, "Whether versions are offered that Kafka may still change (InitProducerId v6, KIP-939)."
    )
    socket_request_max_bytes: int = setting(Kind.INT, 100 << 20, "The largest request taken.", low=1)
    socket_send_buffer_bytes: int = setting(Kind.INT, -1, "SO_SNDBUF; -1 leaves it to the system.", low=-1)
    socket_receive_buffer_bytes: int = setting(Kind.INT, -1, "SO_RCVBUF; -1 leaves it to the system.", low=-1)
    socket_listen_backlog_size: int = setting(Kind.INT, 1024, "Connections waiting to be accepted.", low=1)
    connections_max_idle_ms: int = setting(Kind.LONG, 600_000, "Silence after which a connection is closed.")
    principal_max_connections: int = setting(
        Kind.INT, -1, "Connections at once of one principal that has logged in; more are closed. -1 for no bound.",
        low=-1, ours=True, update=_DYNAMIC,
    )  # fmt: skip
    quota_window_num: int = setting(
        Kind.INT, 11, "Samples kept of the rates of client quotas; more make a burst longer.", low=1
    )
    quota_window_size_seconds: int = setting(Kind.INT, 1, "How long one of these samples takes.", low=1)
    controller_quota_window_num: int = setting(
        Kind.INT, 11, "As quota.window.num, for controller_mutation_rate.", low=1
    )
    controller_quota_window_size_seconds: int = setting(
        Kind.INT, 1, "As quota.window.size.seconds, for controller_mutation_rate.", low=1
    )
    fetch_max_bytes: int = setting(Kind.INT, 55 << 20, "The most a fetch is answered with.", low=1024)
    max_request_partition_size_limit: int = setting(
        Kind.INT, 2000, "The most partitions in one DescribeTopicPartitions answer.", low=1
    )
    durability: Literal["fsync", "os"] = setting(
        Kind.STRING, "fsync",
        "fsync: acks=all is answered once the data is on the disk; os: once it is in the page cache, Kafka's way.",
        choices=("fsync", "os"), ours=True,
    )  # fmt: skip
    log_unflushed_max_bytes: int = setting(
        Kind.LONG, -1,
        "Bytes of all logs that the system may keep from the disk before the broker has some written (durability=os);"
        " -1 for a 24th of the memory, at most 1 GiB.",
        low=-1, ours=True,
    )  # fmt: skip
    log_write_thread_min_bytes: int = setting(
        Kind.INT, 128 << 10, "Batches of so many bytes and more are written by a thread, not by the event loop.", low=1,
        ours=True,
    )  # fmt: skip
    log_failure_policy: Literal["exit", "offline"] = setting(
        Kind.STRING, "exit",
        "A failed flush ends the process (exit), or takes only the log of that file offline until the next start.",
        choices=("exit", "offline"), ours=True,
    )  # fmt: skip
    storage: Literal["files", "memory"] = setting(
        Kind.STRING, "files", "files, or memory for a broker that forgets.", choices=("files", "memory"), ours=True
    )
    metrics_listen: str | None = setting(
        Kind.STRING, None, "HOST:PORT of the Prometheus endpoint; off where not given.", nullable=True, ours=True
    )
    metrics_group_offsets_max: int = setting(
        Kind.INT,
        10_000,
        "Committed offsets that /metrics shows, with their lag. 0 shows none.",
        low=0,
        ours=True,
    )
