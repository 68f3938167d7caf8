"""The settings of the metadata log and its snapshots; names, defaults and bounds are Kafka's."""

from dataclasses import dataclass

from fencepost.broker.config.fields import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MetadataSettings:
    """When the broker takes metadata snapshots, and how much of the metadata log it keeps."""

    metadata_log_max_record_bytes_between_snapshots: int = setting(
        Kind.LONG, 20 << 20, "Bytes of metadata records after which a snapshot is taken.", low=1
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        Kind.LONG, 3_600_000, "The most time between two snapshots, where something has changed; 0 for no bound.", low=0
    )
    metadata_log_segment_bytes: int = setting(
        Kind.INT,
        1 << 30,
        "Size at which a segment of the metadata log is closed; a snapshot may do it earlier.",
        low=12,
    )
    metadata_max_retention_bytes: int = setting(
        Kind.LONG, 100 << 20, "Size at which what the snapshots hold goes from the metadata log; -1 for no bound."
    )
