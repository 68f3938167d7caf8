"""The settings of a broker whose logs are in PostgreSQL and an object store (docs/cluster.md)."""

from dataclasses import dataclass

from fencepost.broker.config.fields import Kind, setting

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's selector that sends a consumer to a broker of its rack (KIP-392)."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ClusterSettings:
    """Where a cluster keeps its logs, and how long its brokers wait for one another."""

    cluster_store: str | None = setting(
        Kind.PASSWORD, None,
        "postgresql://USER@HOST:PORT/DATABASE, the database that orders the logs of a cluster. Not set: the broker is"
        " alone, and its logs are files.",
        nullable=True, ours=True,
    )  # fmt: skip
    cluster_objects: str | None = setting(
        Kind.STRING, None,
        "Where a cluster keeps its records: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX,"
        " file:///DIRECTORY, or memory:// for tests.",
        nullable=True, ours=True,
    )  # fmt: skip
    cluster_lease_ms: int = setting(
        Kind.INT, 3000, "A broker of a cluster that did not reach the database for so long may be replaced.",
        low=200, ours=True,
    )  # fmt: skip
    cluster_active_brokers: str = setting(
        Kind.STRING, "one", "Which brokers of a cluster lead partitions: one, and the others stand by; or all.",
        choices=("one", "all"), ours=True,
    )  # fmt: skip
    replica_selector_class: str | None = setting(
        Kind.CLASS, None,
        "How a cluster with cluster.store chooses the broker that a consumer reads from: by broker.rack and the"
        " consumer's client.rack. Not set: consumers read from leaders.",
        choices=(RACK_AWARE,), nullable=True,
    )  # fmt: skip
    cluster_inline_max_bytes: int = setting(
        Kind.INT, 16 << 10, "A commit of at most so many bytes keeps them in the database, and puts no object.",
        low=0, high=1 << 20, ours=True,
    )  # fmt: skip
    cluster_inline_bytes_per_second: int = setting(
        Kind.INT, 2 << 20, "Larger commits keep their bytes in the database, too, up to so many bytes a second. More"
        " bytes go to objects, which cost less and take longer.",
        low=0, ours=True,
    )  # fmt: skip
    cluster_linger_ms: int = setting(
        Kind.INT, 250, "How long a commit that puts an object waits for further records.",
        low=0, ours=True,
    )  # fmt: skip
    cluster_linger_max_bytes: int = setting(
        Kind.INT, 4 << 20, "A commit of so many bytes waits no longer.", low=1, ours=True
    )
    cluster_cache_directory: str | None = setting(
        Kind.STRING, None, "The directory for cached records, which the broker empties. Not set: a temporary one.",
        nullable=True, ours=True,
    )  # fmt: skip
    cluster_cache_max_bytes: int = setting(
        Kind.LONG, 1 << 30, "Records of a cluster that this broker keeps in its cache directory.", low=1 << 20,
        ours=True,
    )  # fmt: skip
    cluster_tail_max_bytes: int = setting(
        Kind.LONG, 1 << 30,
        "Newest records of a cluster that this broker keeps in its cache directory, besides those that it read again.",
        low=1 << 20, ours=True,
    )  # fmt: skip
    cluster_merge_interval_ms: int = setting(
        Kind.INT, 10_000, "How often the active broker looks for small commits to merge into segments.", low=10,
        ours=True,
    )  # fmt: skip
    cluster_merge_min_rows: int = setting(
        Kind.INT, 10, "So many adjacent commits of a partition, or segments of about one size, become one segment.",
        low=2, ours=True,
    )  # fmt: skip
    cluster_segment_max_bytes: int = setting(
        Kind.INT, 8 << 20,
        "The size up to which a cluster merges a partition's records, unless segment.bytes is smaller. A reader of old"
        " records fetches so much at once.",
        low=1 << 10, ours=True,
    )  # fmt: skip
    cluster_gc_interval_ms: int = setting(
        Kind.INT, 60_000,
        "How often the active broker looks for objects that no record is in any more. It deletes an object one such"
        " interval later.",
        low=10, ours=True,
    )  # fmt: skip
    cluster_sweep_interval_ms: int = setting(
        Kind.INT, 24 * 60 * 60 * 1000,
        "How often the active broker lists all objects, and deletes those that the database does not know: what a"
        " paused broker put too late. The first time is a tenth of this after the broker became active.",
        low=10, ours=True,
    )  # fmt: skip
    cluster_claim_max_age_ms: int = setting(
        Kind.INT, 60 * 60 * 1000,
        "An object that was announced, but not used within this time, is deleted. Its commit fails then, and is"
        " repeated with another object.",
        low=1000, ours=True,
    )  # fmt: skip
