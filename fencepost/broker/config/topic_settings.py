"""The table of topic settings under Kafka's names: type, default, bounds, and the broker settings behind each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Unpack

from fencepost.broker.config import checks
from fencepost.broker.config.fields import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    Facts,
    Kind,
    Setting,
    Value,
)
from fencepost.broker.config.settings import DAY_MS, HOUR_MS

MINUTE_MS = 60_000


class Synonym(NamedTuple):
    """A broker setting that applies if a topic has no override; `factor` converts its unit to the topic's."""

    name: str
    factor: int = 1


class TopicSetting(NamedTuple):
    """A topic setting and its synonyms, in the order of precedence."""

    setting: Setting
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False


def _row(
    name: str, kind: Kind, default: Value, *behind: str | Synonym, internal: bool = False, **facts: Unpack[Facts]
) -> TopicSetting:
    """`behind`: the settings of the broker that hold for a topic without this one."""
    links = tuple(Synonym(entry) if isinstance(entry, str) else entry for entry in behind)
    return TopicSetting(Setting(name, kind, default, **facts), links, internal)


# fmt: off
_ROWS = (
    _row("cleanup.policy", LIST, ("delete",), "log.cleanup.policy", choices=("compact", "delete"),
        doc="What becomes of old data: deletion, compaction or both."),
    _row("compression.type", STRING, "producer", "compression.type", choices=checks.COMPRESSION_TYPES,
        doc="The codec of stored batches; producer keeps the sender's."),
    _row("compression.gzip.level", INT, -1, "compression.gzip.level", check=checks.gzip_level,
        doc="Level of gzip where the broker compresses."),
    _row("compression.lz4.level", INT, 9, "compression.lz4.level", low=1, high=17,
        doc="Level of lz4 where the broker compresses."),
    _row("compression.zstd.level", INT, 3, "compression.zstd.level", low=-131_072, high=22,
        doc="Level of zstd where the broker compresses."),
    _row("delete.retention.ms", LONG, DAY_MS, "log.cleaner.delete.retention.ms", low=0,
        doc="How long tombstones and markers outlive compaction."),
    _row("errors.deadletterqueue.group.enable", BOOLEAN, False, internal=True,
        doc="Whether share groups may write dead letters to this topic (KIP-1191)."),
    _row("file.delete.delay.ms", LONG, MINUTE_MS, "log.segment.delete.delay.ms", low=0,
        doc="How long a removed segment's files stay; not on a full disk."),
    _row("flush.messages", LONG, LONG_MAX, "log.flush.interval.messages", low=1,
        doc="No effect here, `durability` decides. Records after which the log is flushed."),
    _row("flush.ms", LONG, LONG_MAX, "log.flush.interval.ms", "log.flush.scheduler.interval.ms", low=0,
        doc="No effect here, `durability` decides. Age at which unflushed data is flushed."),
    _row("follower.replication.throttled.replicas", LIST, (), check=checks.throttled_replicas,
        doc="No effect here: nothing is replicated. Replicas whose fetching is throttled."),
    _row("index.interval.bytes", INT, 4096, "log.index.interval.bytes", low=0,
        doc="Bytes of log between two index entries."),
    _row("internal.segment.bytes", INT, None, low=14, internal=True,
        doc="As segment.bytes without its lower bound, for tests."),
    _row("leader.replication.throttled.replicas", LIST, (), check=checks.throttled_replicas,
        doc="No effect here: nothing is replicated. Replicas whose serving is throttled."),
    _row("local.retention.bytes", LONG, -2, "log.local.retention.bytes", low=-2,
        doc="No effect here: there is no tiered storage. Local size with tiered storage; -2 as retention.bytes."),
    _row("local.retention.ms", LONG, -2, "log.local.retention.ms", low=-2,
        doc="No effect here: there is no tiered storage. Local age with tiered storage; -2 as retention.ms."),
    _row("max.compaction.lag.ms", LONG, LONG_MAX, "log.cleaner.max.compaction.lag.ms", low=1,
        doc="Age at which records must be compacted."),
    _row("max.message.bytes", INT, 1_048_588, "message.max.bytes", low=0, doc="The largest record batch taken."),
    _row("message.timestamp.after.max.ms", LONG, HOUR_MS, "log.message.timestamp.after.max.ms", low=0,
        doc="How far ahead a record's timestamp may be (KIP-937)."),
    _row("message.timestamp.before.max.ms", LONG, LONG_MAX, "log.message.timestamp.before.max.ms", low=0,
        doc="How old a record's timestamp may be (KIP-937)."),
    _row("message.timestamp.type", STRING, "CreateTime", "log.message.timestamp.type", choices=checks.TIMESTAMP_TYPES,
        doc="Whose clock stamps records."),
    _row("min.cleanable.dirty.ratio", DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio", low=0, high=1,
        doc="Share of uncompacted data that starts a compaction."),
    _row("min.compaction.lag.ms", LONG, 0, "log.cleaner.min.compaction.lag.ms", low=0,
        doc="Age below which records are not compacted."),
    _row("min.insync.replicas", INT, 1, "min.insync.replicas", low=1,
        doc="No effect here: one replica is all there are. Replicas that must have a batch before acks=all is"
            " answered."),
    _row("preallocate", BOOLEAN, False, "log.preallocate",
        doc="No effect here: room is reserved as it is needed. Whether segments get their full size first."),
    _row("read.committed.filter", STRING, "client", "read.committed.filter", choices=checks.READ_COMMITTED_FILTERS,
        ours=True,
        doc="Who leaves aborted records out of read_committed fetches: the client, as in Kafka, or the broker."),
    _row("remote.log.copy.disable", BOOLEAN, False,
        doc="No effect here: there is no tiered storage. Whether tiered storage takes no new segments."),
    _row("remote.log.delete.on.disable", BOOLEAN, False,
        doc="No effect here: there is no tiered storage. Whether switching tiered storage off deletes there."),
    _row("remote.storage.enable", BOOLEAN, False, check=checks.no_tiered_storage,
        doc="Whether segments go to tiered storage."),
    _row("retention.bytes", LONG, -1, "log.retention.bytes",
        doc="Size at which a partition's oldest segments go; -1 for no bound."),
    _row("retention.ms", LONG, 7 * DAY_MS, "log.retention.ms", Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS), low=-1, doc="Age at which segments go; -1 for never."),
    _row("segment.bytes", INT, 1 << 30, "log.segment.bytes", low=1 << 20, doc="Size at which a segment is closed."),
    _row("segment.index.bytes", INT, 10 << 20, "log.index.size.max.bytes", low=4,
        doc="The largest offset index of a segment."),
    _row("segment.jitter.ms", LONG, 0, "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS), low=0,
        doc="The most that is taken off segment.ms, for each segment another part of it."),
    _row("segment.ms", LONG, 7 * DAY_MS, "log.roll.ms", Synonym("log.roll.hours", HOUR_MS), low=1,
        doc="Age at which a segment is closed."),
    _row("share.not.before.enable", BOOLEAN, False, ours=True,
        doc="Whether share groups get no record before the time in its header `not-before`; the broker reads headers"
            " then."),
    _row("unclean.leader.election.enable", BOOLEAN, False, "unclean.leader.election.enable",
        doc="No effect here: one replica leads always. Whether a replica outside the in-sync set may lead."),
)
# fmt: on

TOPIC_SETTINGS: Mapping[str, TopicSetting] = MappingProxyType(
    {row.setting.name: row for row in sorted(_ROWS, key=lambda row: row.setting.name)}
)
"""Every topic setting by its name, in alphabetical order."""
