"""The table of topic settings under Kafka's names: type, default, bounds, and the broker settings behind each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fencepost.broker.config.fields import LONG_MAX, Kind, Setting, Value
from fencepost.broker.config.settings import (
    COMPRESSION_TYPES,
    HOUR_MS,
    READ_COMMITTED_FILTERS,
    TIMESTAMP_TYPES,
    gzip_level_problem,
)

MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * HOUR_MS
_ROOM = "No effect here: room is reserved as it is needed. "
_TIERED = "No effect here: there is no tiered storage. "


class Synonym(NamedTuple):
    """A broker setting that applies if a topic has no override; `factor` converts its unit to the topic's."""

    name: str
    factor: int = 1


class TopicSetting(NamedTuple):
    """A topic setting and its synonyms, in the order of precedence."""

    setting: Setting
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False


def _throttled_replicas_problem(members: tuple[str, ...]) -> str | None:
    for member in members:
        partition, colon, broker = member.partition(":")
        if member != "*" and not (colon and partition.isdigit() and broker.isdigit()):
            return f"{member!r} is not * or PARTITION:BROKER"
    return None


def _row(
    name: str, kind: Kind, default: Value, doc: str, *synonyms: str | Synonym, internal: bool = False, **rest: Any
) -> TopicSetting:
    links = tuple(Synonym(entry) if isinstance(entry, str) else entry for entry in synonyms)
    return TopicSetting(Setting(name, kind, default, doc, **rest), links, internal)


_ROWS = (
    _row(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "What becomes of old data: deletion, compaction or both.",
        "log.cleanup.policy",
        choices=("compact", "delete"),
    ),
    _row(
        "compression.type",
        Kind.STRING,
        "producer",
        "The codec of stored batches; producer keeps the sender's.",
        "compression.type",
        choices=COMPRESSION_TYPES,
    ),
    _row(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Level of gzip where the broker compresses.",
        "compression.gzip.level",
        check=gzip_level_problem,
    ),
    _row(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Level of lz4 where the broker compresses.",
        "compression.lz4.level",
        low=1,
        high=17,
    ),
    _row(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Level of zstd where the broker compresses.",
        "compression.zstd.level",
        low=-131_072,
        high=22,
    ),
    _row(
        "delete.retention.ms",
        Kind.LONG,
        24 * HOUR_MS,
        "How long tombstones and markers outlive compaction.",
        "log.cleaner.delete.retention.ms",
        low=0,
    ),
    _row(
        "file.delete.delay.ms",
        Kind.LONG,
        MINUTE_MS,
        "How long a removed segment's files stay; not on a full disk.",
        "log.segment.delete.delay.ms",
        low=0,
    ),
    _row(
        "flush.messages",
        Kind.LONG,
        LONG_MAX,
        "No effect here, `durability` decides. Records after which the log is flushed.",
        "log.flush.interval.messages",
        low=1,
    ),
    _row(
        "flush.ms",
        Kind.LONG,
        LONG_MAX,
        "No effect here, `durability` decides. Age at which unflushed data is flushed.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        low=0,
    ),
    _row(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "No effect here: nothing is replicated. Replicas whose fetching is throttled.",
        check=_throttled_replicas_problem,
    ),
    _row(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of log between two index entries.",
        "log.index.interval.bytes",
        low=0,
    ),
    _row(
        "internal.segment.bytes",
        Kind.INT,
        None,
        "As segment.bytes without its lower bound, for tests.",
        low=14,
        nullable=True,
        internal=True,
    ),
    _row(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "No effect here: nothing is replicated. Replicas whose serving is throttled.",
        check=_throttled_replicas_problem,
    ),
    _row(
        "local.retention.bytes",
        Kind.LONG,
        -2,
        _TIERED + "Local size with tiered storage; -2 as retention.bytes.",
        "log.local.retention.bytes",
        low=-2,
    ),
    _row(
        "local.retention.ms",
        Kind.LONG,
        -2,
        _TIERED + "Local age with tiered storage; -2 as retention.ms.",
        "log.local.retention.ms",
        low=-2,
    ),
    _row(
        "max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        "Age at which records must be compacted.",
        "log.cleaner.max.compaction.lag.ms",
        low=1,
    ),
    _row("max.message.bytes", Kind.INT, 1_048_588, "The largest record batch taken.", "message.max.bytes", low=0),
    _row(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        HOUR_MS,
        "How far ahead a record's timestamp may be (KIP-937).",
        "log.message.timestamp.after.max.ms",
        low=0,
    ),
    _row(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        "How old a record's timestamp may be (KIP-937).",
        "log.message.timestamp.before.max.ms",
        low=0,
    ),
    _row(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whose clock stamps records.",
        "log.message.timestamp.type",
        choices=TIMESTAMP_TYPES,
    ),
    _row(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of uncompacted data that starts a compaction.",
        "log.cleaner.min.cleanable.ratio",
        low=0,
        high=1,
    ),
    _row(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Age below which records are not compacted.",
        "log.cleaner.min.compaction.lag.ms",
        low=0,
    ),
    _row(
        "min.insync.replicas",
        Kind.INT,
        1,
        "No effect here: one replica is all there are. Replicas that must have a batch before acks=all is answered.",
        "min.insync.replicas",
        low=1,
    ),
    _row("preallocate", Kind.BOOLEAN, False, _ROOM + "Whether segments get their full size first.", "log.preallocate"),
    _row(
        "read.committed.filter",
        Kind.STRING,
        "client",
        "Who leaves aborted records out of read_committed fetches: the client, as in Kafka, or the broker.",
        "read.committed.filter",
        choices=READ_COMMITTED_FILTERS,
        ours=True,
    ),
    _row("remote.log.copy.disable", Kind.BOOLEAN, False, _TIERED + "Whether tiered storage takes no new segments."),
    _row(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        False,
        _TIERED + "Whether switching tiered storage off deletes there.",
    ),
    _row(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        "Whether segments go to tiered storage.",
        check=lambda on: "this broker has no tiered storage" if on else None,
    ),
    _row(
        "retention.bytes",
        Kind.LONG,
        -1,
        "Size at which a partition's oldest segments go; -1 for no bound.",
        "log.retention.bytes",
    ),
    _row(
        "retention.ms",
        Kind.LONG,
        WEEK_MS,
        "Age at which segments go; -1 for never.",
        "log.retention.ms",
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
        low=-1,
    ),
    _row("segment.bytes", Kind.INT, 1 << 30, "Size at which a segment is closed.", "log.segment.bytes", low=1 << 20),
    _row(
        "segment.index.bytes",
        Kind.INT,
        10 << 20,
        "The largest offset index of a segment.",
        "log.index.size.max.bytes",
        low=4,
    ),
    _row(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "The most that is taken off segment.ms, for each segment another part of it.",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS),
        low=0,
    ),
    _row(
        "segment.ms",
        Kind.LONG,
        WEEK_MS,
        "Age at which a segment is closed.",
        "log.roll.ms",
        Synonym("log.roll.hours", HOUR_MS),
        low=1,
    ),
    _row(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "No effect here: one replica leads always. Whether a replica outside the in-sync set may lead.",
        "unclean.leader.election.enable",
    ),
)

TOPIC_SETTINGS: Mapping[str, TopicSetting] = MappingProxyType(
    {row.setting.name: row for row in sorted(_ROWS, key=lambda row: row.setting.name)}
)
"""Every topic setting by its name, in alphabetical order."""
