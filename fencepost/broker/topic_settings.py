"""The table of topic configurations under Kafka's names: type, default, bounds, and the broker settings behind each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fencepost.broker.config_fields import LONG_MAX, Kind, Setting, Value
from fencepost.broker.config_settings import COMPRESSION_TYPES, HOUR_MS, TIMESTAMP_TYPES, gzip_level_problem

MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * HOUR_MS


class Synonym(NamedTuple):
    """A broker setting that stands in where a topic says nothing; `factor` turns its unit into the topic's."""

    name: str
    factor: int = 1


class TopicSetting(NamedTuple):
    """A topic configuration and its synonyms, strongest first."""

    setting: Setting
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False


def _throttled_replicas_problem(members: tuple[str, ...]) -> str | None:
    for member in members:
        partition, colon, broker = member.partition(":")
        if member != "*" and not (colon and partition.isdigit() and broker.isdigit()):
            return f"{member!r} is not * or PARTITION:BROKER"
    return None


def _table() -> dict[str, TopicSetting]:
    found: dict[str, TopicSetting] = {}

    def add(name: str, kind: Kind, default: Value, doc: str, *synonyms: str | Synonym, **rest: Any) -> None:
        internal = rest.pop("internal", False)
        links = tuple(Synonym(entry) if isinstance(entry, str) else entry for entry in synonyms)
        found[name] = TopicSetting(Setting(name, kind, default, doc, **rest), links, internal)

    add(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "What becomes of old data: deletion, compaction or both.",
        "log.cleanup.policy",
        choices=("compact", "delete"),
    )
    add(
        "compression.type",
        Kind.STRING,
        "producer",
        "The codec of stored batches; producer keeps the sender's.",
        "compression.type",
        choices=COMPRESSION_TYPES,
    )
    add(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Level of gzip where the broker compresses.",
        "compression.gzip.level",
        check=gzip_level_problem,
    )
    add(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Level of lz4 where the broker compresses.",
        "compression.lz4.level",
        low=1,
        high=17,
    )
    add(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Level of zstd where the broker compresses.",
        "compression.zstd.level",
        low=-131_072,
        high=22,
    )
    add(
        "delete.retention.ms",
        Kind.LONG,
        24 * HOUR_MS,
        "How long tombstones and markers outlive compaction.",
        "log.cleaner.delete.retention.ms",
        low=0,
    )
    add(
        "file.delete.delay.ms",
        Kind.LONG,
        MINUTE_MS,
        "How long a removed segment's files stay.",
        "log.segment.delete.delay.ms",
        low=0,
    )
    add(
        "flush.messages",
        Kind.LONG,
        LONG_MAX,
        "Records after which the log is flushed.",
        "log.flush.interval.messages",
        low=1,
    )
    add(
        "flush.ms",
        Kind.LONG,
        LONG_MAX,
        "Age at which unflushed data is flushed.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        low=0,
    )
    add(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Replicas whose fetching is throttled.",
        check=_throttled_replicas_problem,
    )
    add(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of log between two index entries.",
        "log.index.interval.bytes",
        low=0,
    )
    add(
        "internal.segment.bytes",
        Kind.INT,
        None,
        "As segment.bytes without its lower bound, for tests.",
        low=14,
        nullable=True,
        internal=True,
    )
    add(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Replicas whose serving is throttled.",
        check=_throttled_replicas_problem,
    )
    add("local.retention.bytes", Kind.LONG, -2, "Local size with tiered storage; -2 as retention.bytes.", low=-2)
    add("local.retention.ms", Kind.LONG, -2, "Local age with tiered storage; -2 as retention.ms.", low=-2)
    add(
        "max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        "Age at which records must be compacted.",
        "log.cleaner.max.compaction.lag.ms",
        low=1,
    )
    add("max.message.bytes", Kind.INT, 1_048_588, "The largest record batch taken.", "message.max.bytes", low=0)
    add(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        HOUR_MS,
        "How far ahead a record's timestamp may be (KIP-937).",
        "log.message.timestamp.after.max.ms",
        low=0,
    )
    add(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        "How old a record's timestamp may be (KIP-937).",
        "log.message.timestamp.before.max.ms",
        low=0,
    )
    add(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whose clock stamps records.",
        "log.message.timestamp.type",
        choices=TIMESTAMP_TYPES,
    )
    add(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of uncompacted data that starts a compaction.",
        "log.cleaner.min.cleanable.ratio",
        low=0,
        high=1,
    )
    add(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Age below which records are not compacted.",
        "log.cleaner.min.compaction.lag.ms",
        low=0,
    )
    add(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Replicas that must have a batch before acks=all is answered.",
        "min.insync.replicas",
        low=1,
    )
    add("preallocate", Kind.BOOLEAN, False, "Whether segments get their full size first.", "log.preallocate")
    add("remote.log.copy.disable", Kind.BOOLEAN, False, "Whether tiered storage takes no new segments.")
    add("remote.log.delete.on.disable", Kind.BOOLEAN, False, "Whether switching tiered storage off deletes there.")
    add(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        "Whether segments go to tiered storage.",
        check=lambda on: "this broker has no tiered storage" if on else None,
    )
    add(
        "retention.bytes",
        Kind.LONG,
        -1,
        "Size at which a partition's oldest segments go; -1 for no bound.",
        "log.retention.bytes",
    )
    add(
        "retention.ms",
        Kind.LONG,
        WEEK_MS,
        "Age at which segments go; -1 for never.",
        "log.retention.ms",
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
        low=-1,
    )
    add("segment.bytes", Kind.INT, 1 << 30, "Size at which a segment is closed.", "log.segment.bytes", low=1 << 20)
    add(
        "segment.index.bytes",
        Kind.INT,
        10 << 20,
        "The largest offset index of a segment.",
        "log.index.size.max.bytes",
        low=4,
    )
    add(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "Random part taken off segment.ms.",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS),
        low=0,
    )
    add(
        "segment.ms",
        Kind.LONG,
        WEEK_MS,
        "Age at which a segment is closed.",
        "log.roll.ms",
        Synonym("log.roll.hours", HOUR_MS),
        low=1,
    )
    add(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether a replica outside the in-sync set may lead.",
        "unclean.leader.election.enable",
    )
    return found  # fmt: skip


TOPIC_SETTINGS: Mapping[str, TopicSetting] = MappingProxyType(dict(sorted(_table().items())))
"""Every topic configuration by its name, in alphabetical order."""
