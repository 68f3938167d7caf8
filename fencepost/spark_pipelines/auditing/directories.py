"""Reads a stopped broker's data directory for an audit: segments, lists of aborted transactions, coordinators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fencepost.broker.log.compaction.swap import SWAP
from fencepost.broker.log.recovery.opening import ALL_TRUSTED
from fencepost.broker.log.recovery.scanning import batches
from fencepost.broker.log.storage.layout import core_directories
from fencepost.broker.log.storage.lock import DirectoryInUse, all_locked
from fencepost.broker.log.storage.reserve import is_room
from fencepost.broker.log.storage.segment import LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.storage.txn_index import TXN_ENTRY
from fencepost.broker.log.verify.directory import DirectoryCheck
from fencepost.broker.log.verify.files import ReadSegment, file_names, load, segment_bases
from fencepost.broker.log.verify.report import Report
from fencepost.broker.verification import metadata_facts
from fencepost.coordinator.txn import codec
from fencepost.coordinator.txn.state import Dead, Ongoing, PrepareAbort, PrepareCommit
from fencepost.protocol.batch_header import BatchHeader, Buffer, CorruptBatch, check_crc
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition
from fencepost.spark_pipelines.auditing.bounds import Bounds
from fencepost.spark_pipelines.auditing.facts import Fact, damage, fact_of, indexed
from fencepost.spark_pipelines.auditing.owners import Owner
from fencepost.spark_pipelines.auditing.plan import Plan, SegmentPiece
from fencepost.spark_pipelines.errors import PipelineError


@contextmanager
def locked(directories: Sequence[Path]) -> Iterator[None]:
    """Lock the directories against brokers. Raises PipelineError if a broker runs on one of them."""
    with ExitStack() as locks:
        for directory in directories:
            try:
                locks.enter_context(all_locked(directory, shared=True))
            except DirectoryInUse:
                raise PipelineError(
                    f"a broker runs on {directory}: stop it first, audit a copy of the directory,"
                    " or audit through the broker with --bootstrap HOST:PORT"
                ) from None
        yield


def plan_directories(directories: Sequence[Path], topics: Collection[str]) -> Plan:
    """Every segment of the topics' partitions. No topics means all that are not internal. Writes nothing.

    Raises PipelineError if a topic does not exist or a partition is in two directories; OSError.
    """
    plan = Plan(", ".join(str(directory) for directory in directories), owners={})
    home: dict[TopicPartition, Path] = {}
    for directory, root in [(path, one) for one in directories for path in core_directories(one).values()]:
        check = DirectoryCheck(directory, Report(), shallow=True)
        facts = metadata_facts(root)
        plan.owners = {**(plan.owners or {}), **_owners(directory, check)}
        for tp, name in sorted(check.partitions.items()):
            if tp.topic not in topics if topics else tp.topic.startswith("__"):
                continue
            if tp in home:
                raise PipelineError(f"{tp} is in {home[tp]} and in {directory}: audit replicas one after the other")
            home[tp] = directory
            expected = check.expectations(tp, facts)
            pieces = _segments(tp, directory / name)
            clean = expected.recovery_point == ALL_TRUSTED
            plan.bounds[tp] = Bounds(
                start=max(expected.log_start_offset, pieces[0].base_offset if pieces else 0),
                end=expected.known_end,
                compacted=expected.compacted,
                end_is_least=True,
                durable=None if clean else expected.recovery_point,
                listed=None if clean else expected.recovery_point,
            )
            plan.pieces += pieces
    absent = sorted(set(topics) - {tp.topic for tp in home})
    if absent or not home:
        paths = [path for one in directories for path in core_directories(one).values()]
        there = sorted({tp.topic for one in paths for tp in DirectoryCheck(one, Report()).partitions})
        what = f"no topic {', '.join(absent)}" if absent else "no topic"
        raise PipelineError(f"there is {what} in {plan.source}; there are: {', '.join(there) or 'none at all'}")
    return plan


def segment_facts(piece: SegmentPiece) -> Iterator[Fact]:
    """The batches of a segment and the entries of its list of aborted transactions. Raises OSError."""
    topic, partition = piece.tp
    directory = Path(piece.directory)
    segment = ReadSegment(directory, piece.base_offset)
    expected = piece.base_offset
    try:
        for position, header, data in batches(segment, 0):
            yield fact_of(topic, partition, piece.number, position, data, 0, header)
            expected = max(expected, header.next_offset)
    except CorruptLogFile as error:
        if not is_room(segment.file, error.position, segment.size_bytes):
            why = f"{segment.name} at byte {error.position}: {error.why}"
            yield damage(topic, partition, piece.number, error.position, expected, why)
    finally:
        segment.file.close()
    name = file_name(piece.base_offset, TXN_INDEX_SUFFIX)
    entries = load(directory / name) or b""
    if len(entries) % TXN_ENTRY.size:
        yield damage(topic, partition, piece.number, 0, expected, f"{name}: half an entry at its end")
    whole = entries[: len(entries) // TXN_ENTRY.size * TXN_ENTRY.size]
    for _, producer_id, first, last, _ in TXN_ENTRY.iter_unpack(whole):
        yield indexed(topic, partition, piece.number, producer_id, first, last)


def _segments(tp: TopicPartition, directory: Path) -> list[SegmentPiece]:
    names = file_names(directory)
    if any(name.endswith(SWAP) for name in names):
        raise PipelineError(
            f"{directory}: a compaction was interrupted; start the broker once and stop it, and audit again"
        )
    return [
        SegmentPiece(tp, number, str(directory), base, (directory / file_name(base, LOG_SUFFIX)).stat().st_size)
        for number, base in enumerate(segment_bases(names))
    ]


def _owners(directory: Path, check: DirectoryCheck) -> dict[int, Owner]:
    """The last state in the transaction coordinators' logs, by producer id.

    Unreadable parts are skipped: the audit of `__transaction_state` itself reports damage.
    """
    last: dict[str, tuple[int, Owner]] = {}
    for tp, name in sorted(check.partitions.items()):
        if tp.topic != TRANSACTION_TOPIC:
            continue
        for base in segment_bases(file_names(directory / name)):
            segment = ReadSegment(directory / name, base)
            try:
                for _, header, data in batches(segment, 0):
                    fold_owners(last, header, data)
            except (CorruptLogFile, CorruptBatch, codec.UnreadableRecord):
                break
            finally:
                segment.file.close()
    return dict(last.values())


def fold_owners(last: dict[str, tuple[int, Owner]], header: BatchHeader, data: Buffer, start: int = 0) -> None:
    """Add the records of a batch of a transaction coordinator's log to the last states, by transactional id.

    Raises CorruptBatch and UnreadableRecord.
    """
    if header.is_control:
        return
    if not check_crc(data, start, header):
        raise CorruptBatch("the CRC-32C does not match")
    for record in decode_records(data, start, header):
        entry = codec.decode(record.key, record.value)
        if entry is None:
            continue
        state = entry.state
        if isinstance(state, Dead):
            last.pop(entry.transactional_id, None)
            continue
        where = state.partitions if isinstance(state, Ongoing | PrepareCommit | PrepareAbort) else ()
        owner = Owner(entry.transactional_id, type(state).__name__, state.producer.epoch, where)
        last[entry.transactional_id] = (state.producer.producer_id, owner)
