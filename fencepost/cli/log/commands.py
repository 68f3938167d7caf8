"""`fencepost log dump`: what is in the files of a log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.connect import fail
from fencepost.cli.plain_text import cell, counted, moment

if TYPE_CHECKING:
    from fencepost.cli.log.reading import Batch, Ends, Rest, Segment
    from fencepost.protocol.records import Record

HEAD = (
    f"{'OFFSETS':<19} {'POSITION':>10} {'BYTES':>8} {'RECORDS':>7}  {'CODEC':<6}  {'NEWEST':<24}  {'PRODUCER':<12}"
    f" {'SEQUENCES':<13} WHAT"
)


@click.group()
def log() -> None:
    """Look into the files of a log."""


@log.command(short_help="Show the batches in the files of a log, and which were aborted.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--records", is_flag=True, help="Show the records of each batch, too.")
@click.option("--aborted", is_flag=True, help="Show only batches of aborted transactions, and their markers.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object for each line, errors too.")
def dump(paths: tuple[Path, ...], records: bool, aborted: bool, as_json: bool) -> None:
    """Show what is in a partition's directory, a segment (.log), a .snapshot or a .txnindex. It writes nothing.

    Each line is a batch. WHAT says what became of it: `committed`, `aborted` or `open` in a transaction, else nothing;
    or the marker that ended a transaction. The markers come from the whole directory, so they may be in later
    segments. A broker may be running. Files of Kafka have the same format. If the last compaction of the partition
    failed, the first line says why.

    Exit code 1: a batch is damaged, or bytes that are no batch follow the last one; `fencepost verify` says more.

    \b
    Examples:
      fencepost log dump data/orders-0
      fencepost log dump data/orders-0/00000000000000000000.log --records
      fencepost log dump data/orders-0 --aborted --json
    """
    damaged = 0
    for path in paths:
        if path.suffix == ".snapshot":
            _print_snapshot(path, as_json)
        elif path.suffix == ".txnindex":
            _print_txn_index(path, as_json)
        elif path.is_dir() or path.suffix == ".log":
            damaged += _dump(path, records, aborted, as_json)
        else:
            fail(
                f"{path} is no directory of a log, and no .log, .snapshot or .txnindex",
                "`fencepost verify` checks others.",
            )
    if damaged:
        fail(f"{counted(damaged, 'place')} of these files cannot be read", "`fencepost verify` says what follows.")


def _dump(path: Path, records: bool, aborted: bool, as_json: bool) -> int:
    """Print a segment, or all of a directory. Returns the number of damaged places."""
    from fencepost.cli.log.reading import Ends, Segment, segments_of

    shown = segments_of(path) if path.is_dir() else [path]
    if not shown:
        fail(f"{path} has no segments", "Name the directory of a partition, such as data/orders-0.")
    if path.is_dir():
        _print_uncleanable(path, as_json)
    ends = Ends()
    ends.read(one for one in segments_of(path if path.is_dir() else path.parent) if one.name >= shown[0].name)
    damaged = 0
    for one in shown:
        with Segment(one) as segment:
            if not as_json:
                click.echo(f"{one}\n{HEAD}")
            damaged += _print_segment(segment, ends, records, aborted, as_json)
    return damaged


def _print_uncleanable(path: Path, as_json: bool) -> None:
    """Why the last compaction of this partition failed, if it did."""
    from fencepost.broker.log.storage.layout import UNCLEANABLE

    if not (path / UNCLEANABLE).is_file():
        return
    cause = (path / UNCLEANABLE).read_text(encoding="utf-8", errors="replace")
    if as_json:
        click.echo(json.dumps({"directory": str(path), "uncleanable": cause}))
    else:
        click.echo(f"{path} is uncleanable, its last compaction failed: {cell(cause)}")


def _print_segment(segment: "Segment", ends: "Ends", records: bool, aborted: bool, as_json: bool) -> int:
    from fencepost.cli.log.reading import Rest
    from fencepost.protocol.batch_header import CorruptBatch

    damaged = 0
    for found in segment.batches():
        if isinstance(found, Rest):
            damaged += not found.is_reserved
            click.echo(json.dumps({"file": str(segment.path), **found._asdict()}) if as_json else _rest_text(found))
            continue
        fate = ends.of(found.header)
        shown: list[Record] = []
        if records and found.damage is None and found.control is None:
            try:
                shown = segment.records(found)
            except CorruptBatch as error:
                found = found._replace(damage=str(error))
        damaged += found.damage is not None
        if aborted and fate != "aborted" and found.control != "ABORT" and found.damage is None:
            continue
        if as_json:
            click.echo(json.dumps(_as_json(segment.path, found, fate, shown, records)))
        else:
            click.echo(_text(found, fate))
            for record in shown:
                click.echo(_record_text(record))
    return damaged


def _text(batch: "Batch", fate: str | None) -> str:
    header = batch.header
    offsets = _range(header.base_offset, header.last_offset)
    producer = f"{header.producer_id}:{header.producer_epoch}" if header.producer_id >= 0 else "-"
    sequences = _range(header.base_sequence, header.last_sequence) if header.base_sequence >= 0 else "-"
    what = batch.control or fate or ""
    if batch.coordinator_epoch is not None:
        what += f" (coordinator epoch {batch.coordinator_epoch})"
    if batch.damage is not None:
        what = f"DAMAGED: {batch.damage}"
    return (
        f"{offsets:<19} {batch.position:>10} {header.size_bytes:>8} {header.record_count:>7} "
        f" {header.compression.name.lower():<6}  {moment(header.max_timestamp):<24}  {producer:<12} {sequences:<13}"
        f" {what}"
    ).rstrip()


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _rest_text(rest: "Rest") -> str:
    if rest.is_reserved:
        return f"{rest.size_bytes} bytes at {rest.position} are reserved"
    return f"{rest.size_bytes} bytes at {rest.position} are no batch: {rest.why}"


def _record_text(record: "Record") -> str:
    parts = [f"  {record.offset}", moment(record.timestamp_ms), f"key={_content(record.key)}"]
    parts += [f"value={_content(record.value)}"]
    parts += [f"{cell(name)}={_content(content)}" for name, content in record.headers]
    return " ".join(parts)


def _content(content: bytes | None) -> str:
    """Bytes on one line: text as it is, other bytes as escapes; a dash for null."""
    return "-" if content is None else repr(content)[1:]


def _as_json(path: Path, batch: "Batch", fate: str | None, shown: "list[Record]", records: bool) -> dict[str, Any]:
    header = batch.header
    found: dict[str, Any] = {
        "file": str(path),
        "position": batch.position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "codec": header.compression.name.lower(),
        "leader_epoch": header.partition_leader_epoch,
        "max_timestamp_ms": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "outcome": fate,
        "control": batch.control,
        "coordinator_epoch": batch.coordinator_epoch,
        "damage": batch.damage,
    }
    if records:
        found["content"] = [_record_json(record) for record in shown]
    return found


def _record_json(record: "Record") -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _decoded(record.key),
        "value": _decoded(record.value),
        "headers": [[name, _decoded(content)] for name, content in record.headers],
    }


def _decoded(content: bytes | None) -> str | None:
    """The text; bytes that are not UTF-8 are escapes in it."""
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _print_snapshot(path: Path, as_json: bool) -> None:
    from fencepost.broker.log.recovery.snapshots import decode_snapshot
    from fencepost.broker.log.storage.store import CorruptLogFile

    try:
        entries = decode_snapshot(path.read_bytes(), str(path))
    except CorruptLogFile as error:
        fail(str(error), "`fencepost verify` says what follows.")
    for entry in entries:
        facts = {
            "producer_id": entry.producer_id,
            "epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.batches[-1].last_offset if entry.batches else None,
            "open_since_offset": entry.txn_first_offset if entry.txn_first_offset >= 0 else None,
            "coordinator_epoch": entry.coordinator_epoch,
            "last_timestamp": moment(entry.last_timestamp_ms),
        }
        click.echo(json.dumps(facts) if as_json else " ".join(f"{name}={cell(value)}" for name, value in facts.items()))


def _print_txn_index(path: Path, as_json: bool) -> None:
    from fencepost.broker.log.storage.txn_index import TXN_ENTRY

    data = path.read_bytes()
    for facts in _aborted_in(data[: len(data) // TXN_ENTRY.size * TXN_ENTRY.size]):
        click.echo(json.dumps(facts) if as_json else " ".join(f"{name}={value}" for name, value in facts.items()))
    if len(data) % TXN_ENTRY.size:
        fail(f"{path} ends within an entry", "A start makes it anew from the batches.")


def _aborted_in(data: bytes) -> Iterator[dict[str, int]]:
    from fencepost.broker.log.storage.txn_index import TXN_ENTRY

    for _, producer_id, first, last, stable in TXN_ENTRY.iter_unpack(data):
        yield {"producer_id": producer_id, "first_offset": first, "marker_offset": last, "last_stable_offset": stable}
