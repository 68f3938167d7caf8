"""The check of `fencepost verify`: of the logs, and of the cluster identity and the internal topics' records."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fencepost.broker.cores.handed_logs import HandedLogs
from fencepost.broker.log.storage.checkpoints import PARTITION_METADATA
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import CORE_MOVES, CORE_STARTS, CORES_DIRECTORY, core_directories
from fencepost.broker.log.storage.segment import LOG_SUFFIX
from fencepost.broker.log.verify.directory import DirectoryCheck, MetadataFacts
from fencepost.broker.log.verify.files import file_names
from fencepost.broker.log.verify.partition import RecordCheck
from fencepost.broker.log.verify.report import Level, Report
from fencepost.broker.metadata.identity import META_PROPERTIES, META_PROPERTIES_TWIN, read_properties
from fencepost.broker.metadata.log import METADATA_PARTITION, METADATA_TOPIC_ID
from fencepost.broker.metadata.reader import MetadataReader, NoMetadataLog
from fencepost.coordinator.group import codec as group_codec
from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.snapshot import read_snapshot, snapshot_id
from fencepost.coordinator.share import records as share_records
from fencepost.coordinator.txn import codec as txn_codec
from fencepost.protocol.metadata_records import MetadataRecordError, decode_metadata_record
from fencepost.protocol.records import Record
from fencepost.protocol.topics import GROUP_TOPIC, METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, TopicPartition


def verify(
    directory: Path,
    report: Report,
    *,
    topic: str | None = None,
    partition: int | None = None,
    shallow: bool = False,
    begin: Callable[[int], None] = lambda total_bytes: None,
) -> None:
    """Check a data directory, or only the named partitions. Calls `begin` with the number of bytes to read.

    Raises OSError, and LookupError if this is not a data directory, or if no partition has that name.
    """
    checks = {path: DirectoryCheck(path, report, shallow=shallow) for path in core_directories(directory).values()}
    names = checks[directory].partitions.values()
    if not (_has_identity(directory) or any(_has_log(directory / name) for name in names)):
        raise LookupError(
            f"{directory} is not a data directory: it holds neither {META_PROPERTIES} nor a partition's log."
            " Name the directory of `serve --data`"
        )
    chosen = {
        path: [
            tp
            for tp in sorted(check.partitions)
            if (topic is None or tp.topic == topic) and (partition is None or tp.partition == partition)
        ]
        for path, check in checks.items()
    }
    if (topic is not None or partition is not None) and not any(chosen.values()):
        raise LookupError(f"{directory} holds no such partition")
    facts = metadata_facts(directory)
    topics = {topic_id: name for name, topic_id in (facts.topic_ids or {}).items()}
    handed = HandedLogs([FileStore(path) for path in checks]).all()
    moving = {TopicPartition(topics[topic_id], number) for _, topic_id, number in handed if topic_id in topics}
    facts = replace(facts, on_cores=moving.union(*(check.partitions for check in checks.values())))
    begin(sum(check.total_bytes(chosen[path]) for path, check in checks.items()))
    if METADATA_PARTITION in chosen[directory]:
        _check_snapshots(directory / str(METADATA_PARTITION), report)
    for path, check in checks.items():
        report.below = f"{path.relative_to(directory)}/" if path != directory else ""
        if topic is None and partition is None:
            _check_identity(path, report)
            check.check_surroundings(facts)
        for tp in chosen[path]:
            check.check_partition(tp, facts)
    report.below = ""


def _has_identity(directory: Path) -> bool:
    return any((directory / name).exists() for name in (META_PROPERTIES, META_PROPERTIES_TWIN))


def _has_log(directory: Path) -> bool:
    return any(name == PARTITION_METADATA or name.endswith(LOG_SUFFIX) for name in file_names(directory))


def _check_identity(directory: Path, report: Report) -> None:
    """The two files with the cluster and node id must match their checksums, and each other."""
    if (directory / CORE_MOVES).exists():
        what = "says that partitions were being moved from core to core"
        report.add(Level.NOTE, CORE_MOVES, what, "The next start finishes that")
    read = {name: read_properties(directory / name) for name in (META_PROPERTIES, META_PROPERTIES_TWIN)}
    checked = [properties for properties, is_checked in read.values() if is_checked]
    for name, (properties, is_checked) in read.items():
        if (directory / name).exists() and (properties is None or (checked and not is_checked)):
            report.damage(name, "was changed after it was written", "The next start uses the other of the two files")
    if checked and checked != [checked[0]] * 2:
        report.damage(META_PROPERTIES, "differs from its copy", "The next start uses the first undamaged file")


def metadata_facts(directory: Path) -> MetadataFacts:
    """The metadata up to its first damaged batch, which the check of its partition reports."""
    own_files = (META_PROPERTIES, META_PROPERTIES_TWIN, CORES_DIRECTORY, CORE_STARTS, CORE_MOVES)
    image = _image(directory / str(METADATA_PARTITION))
    if image is None:
        return MetadataFacts(compacted=(GROUP_TOPIC, TRANSACTION_TOPIC), records=_RECORDS, own_files=own_files)
    topics = image.topics_by_name.values()
    compacted = {GROUP_TOPIC, TRANSACTION_TOPIC}
    compacted |= {t.name for t in topics if "compact" in image.topic_config(t.name).get("cleanup.policy", "")}
    return MetadataFacts(
        topic_ids={METADATA_TOPIC: METADATA_TOPIC_ID, **{topic.name: topic.topic_id for topic in topics}},
        partitions={METADATA_TOPIC: 1, **{topic.name: topic.partitions for topic in topics}},
        compacted=compacted,
        records=_RECORDS,
        own_files=own_files,
    )


def _image(directory: Path) -> MetadataImage | None:
    try:
        return MetadataReader(directory).image()
    except (NoMetadataLog, MetadataCorrupt, OSError):
        return None  # the check of the metadata partition reports the error


def _check_snapshots(directory: Path, report: Report) -> None:
    """Each metadata snapshot must be valid: a start may depend on it alone."""
    names = file_names(directory) if directory.is_dir() else []
    for name in names:
        found = snapshot_id(name)
        if found is None:
            continue
        try:
            read_snapshot((directory / name).read_bytes(), found.offset, name)
        except MetadataCorrupt as error:
            meaning = "A start uses the snapshot before it and the log: delete it if there is one, or restore a backup"
            report.damage(f"{directory.name}/{name}", str(error), meaning)


def _readable(what: str, read: Callable[[Record], object], unreadable: type[Exception]) -> RecordCheck:
    """A check that `read` can decode each record."""

    def check(record: Record) -> str | None:
        try:
            read(record)
        except unreadable as error:
            return f"is none of {what}: {error}"
        return None

    return check


_RECORDS: dict[str, RecordCheck] = {
    METADATA_TOPIC: _readable("the metadata", lambda r: decode_metadata_record(r.value or b""), MetadataRecordError),
    GROUP_TOPIC: _readable("a group", lambda r: group_codec.decode(r.key, r.value), group_codec.CorruptRecord),
    SHARE_STATE_TOPIC: _readable(
        "a share partition", lambda r: share_records.decode(r.key, r.value), share_records.UnreadableRecord
    ),
    TRANSACTION_TOPIC: _readable(
        "a transaction", lambda r: txn_codec.decode(r.key, r.value), txn_codec.UnreadableRecord
    ),
}
