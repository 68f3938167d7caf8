"""The settings of one partition's log, under Kafka's topic-level names."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES

UNLIMITED = -1
LZ4_DEFAULT_LEVEL = 9
"""Kafka's default, which means the codec's fast mode there and not its level 9 (KIP-390)."""
DECOMPRESSED_LIMIT = "message.max.decompressed.bytes"
"""The broker's setting behind `LogConfig.message_max_decompressed_bytes`."""
NEVER_MS = 2**63 - 1
"""Kafka's value for a bound of time that is disabled."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one partition keeps its data. Defaults are Kafka 4's; `log.config` may be replaced while the log is in use.

    -1 disables `retention_ms` and `retention_bytes`. `cleanup_policy` holds "delete", "compact" or both.
    `compression_type` is "producer" (keep the producer's codec) or a codec's name. The cleaner uses
    `min_compaction_lag_ms` and its neighbours. `segment_jitter_ms` is the most that is subtracted from `segment_ms`
    (see `jitter_ms`). `file_delete_delay_ms` is how long deleted files keep their bytes. `producer_id_expiration_ms` is
    KIP-854's limit for idle producers (row P10). `producer_ids_max` bounds the producers of one partition: beyond it
    the log forgets those idle longest without an open transaction. `message_max_decompressed_bytes` bounds a batch
    whose records the broker must read, after decompression; it is a fencepost setting.
    `retention_spares_open_transactions` is one, too (row 20 of section 0): False deletes as Kafka does. So is
    `read_committed_filter`: "broker" leaves aborted batches out of read_committed fetches (row I4), which a listener or
    a client may overrule. So is `share_not_before_enable`: share groups get no record before the time in its header.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1048588
    message_max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = NEVER_MS
    message_timestamp_after_max_ms: int = 3600 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = LZ4_DEFAULT_LEVEL
    compression_zstd_level: int = 3
    delete_retention_ms: int = 24 * 3600 * 1000
    file_delete_delay_ms: int = 60 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    min_insync_replicas: int = 1
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    producer_ids_max: int = 100_000
    retention_spares_open_transactions: bool = True
    read_committed_filter: Literal["broker", "client"] = "client"
    share_not_before_enable: bool = False

    @property
    def keeps_batches(self) -> bool:
        """Whether batches are stored unchanged, and without decoding if their largest timestamp is in bounds."""
        return (
            self.message_timestamp_type != "LogAppendTime"
            and self.compression_type == "producer"
            and self.message_timestamp_before_max_ms >= NEVER_MS
            and "compact" not in self.cleanup_policy
        )

    @property
    def compacted(self) -> bool:
        """Whether records need keys (row L9)."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def stamps_append_time(self) -> bool:
        """KIP-32: the broker's clock replaces the producer's timestamps."""
        return self.message_timestamp_type == "LogAppendTime"


def jitter_ms(segment: str, config: LogConfig) -> int:
    """The jitter subtracted from this segment's segment.ms: below the smaller of both settings, as in Kafka.

    Kafka draws a random number each time it opens a segment. Here a hash of the segment's name replaces it: equally
    spread, and the same after a restart.
    """
    bound_ms = min(config.segment_jitter_ms, config.segment_ms)
    drawn = int.from_bytes(blake2b(segment.encode(), digest_size=4).digest())
    return drawn * bound_ms >> 32
