"""`fencepost backup` and `fencepost restore`: a data directory, copied while its broker runs."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.plain_text import counted
from fencepost.cli.progress import progress_bar

if TYPE_CHECKING:
    from fencepost.broker.log.backup.manifest import Manifest
    from fencepost.broker.log.backup.pins import PinnedLog
    from fencepost.client import Client
    from fencepost.client.admin import Admin
    from fencepost.protocol.topics import TopicPartition

ATTEMPTS = 50
PINNED = ".backup"
"""The directory of the links, in the data directory: hard links need the same file system."""
_MIB = 1 << 20


class _Refusal(NamedTuple):
    """Why no cut could be taken, and what to do."""

    why: str
    hint: str


@click.command(short_help="Copy a data directory while its broker runs.")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("target", type=click.Path(path_type=Path))
@broker_options
def backup(directory: Path, target: Path, broker: Broker) -> None:
    """Copy a data directory as it is at one instant, while its broker runs. TARGET must not exist.

    The broker is asked once, for the ends of all logs at one instant. The backup has all that was acknowledged before,
    and nothing that came later: transactions are whole, group offsets fit the records. Files that do not change any
    more are hard links, if TARGET is on the same file system: copy the backup to another disk. A stopped broker is not
    asked. A broker on several cores must be stopped.

    \b
    Examples:
      fencepost backup /var/lib/fencepost/data /backups/2026-11-27
      fencepost restore /backups/2026-11-27 /var/lib/fencepost/data
    """
    if target.exists():
        fail(f"{target} exists already", "Name a new directory: each backup is one.")
    began = time.monotonic()
    pinned = directory / PINNED
    try:
        shutil.rmtree(pinned, ignore_errors=True)
        manifest = _back_up(directory, pinned, target, broker)
    except OSError as error:
        fail(f"the backup failed: {error}", f"{target} is no backup: delete it.")
    finally:
        shutil.rmtree(pinned, ignore_errors=True)
    _report(manifest, time.monotonic() - began, broker.as_json, f"backed up to {target}")


@click.command(short_help="Make a data directory of a backup.")
@click.argument("source", metavar="BACKUP", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too.")
def restore(source: Path, directory: Path, as_json: bool) -> None:
    """Copy a backup into a new data directory, and check each byte.

    The broker that starts there has the cluster id and the node id of the old one: do not run both.

    \b
    Example:
      fencepost restore /backups/2026-11-27 /var/lib/fencepost/data
    """
    from fencepost.broker.log.backup import writing
    from fencepost.broker.log.backup.manifest import BadBackup

    began = time.monotonic()
    try:
        with progress_bar("restoring", as_json) as begin:
            manifest = writing.restore(source, directory, begin)
    except (BadBackup, OSError) as error:
        fail(str(error), "Nothing was restored.")
    _report(manifest, time.monotonic() - began, as_json, f"restored in {directory}")


def _back_up(directory: Path, pinned: Path, target: Path, broker: Broker) -> "Manifest":
    from fencepost.broker.log.backup import writing
    from fencepost.broker.log.backup.pins import PinnedLog, partitions_in
    from fencepost.broker.log.storage.layout import core_directories
    from fencepost.broker.log.storage.lock import DirectoryInUse, all_locked
    from fencepost.broker.metadata.log import METADATA_PARTITION

    small = writing.small_files(directory)
    cluster_id, node_id = _identity(directory, small)
    logs: dict[TopicPartition, PinnedLog] = {}
    try:
        with all_locked(directory, shared=True):
            ends = _ends_on_disk(directory, pinned, logs)
    except DirectoryInUse:
        if any(partitions_in(path) for number, path in core_directories(directory).items() if number):
            fail(
                f"the brokers of several cores run on {directory}, and their logs cannot be copied as of one instant",
                "Stop them, back up, and start them again; or take a snapshot of the file system.",
            )
        ends = broker.run("backup", lambda kafka: _cut(kafka, directory, pinned, logs, (cluster_id, node_id)))
        if isinstance(ends, _Refusal):
            fail(*ends)
    metadata = logs.get(METADATA_PARTITION)
    if metadata is None:
        fail(f"{directory} has no log of the metadata", "Name the data directory of a broker.")
    metadata.pin()  # behind the cut: what the logs refer to is there
    ends = {**ends, METADATA_PARTITION: _end_of(metadata)}
    target.mkdir(mode=0o700, parents=True)
    with progress_bar("backing up", broker.as_json) as begin:
        made = writing.Backup(directory, target, begin(writing.bytes_below(logs)))
        for name, content in small.items():
            made.add_file(name, content)
        for tp, end in sorted(ends.items()):
            made.add_log(logs[tp], end)
        return made.finish(cluster_id, node_id)


def _identity(directory: Path, small: Mapping[str, bytes]) -> tuple[str, int]:
    lines = small.get("meta.properties", b"").decode(errors="replace").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        return found["cluster.id"], int(found["node.id"])
    except (KeyError, ValueError):
        fail(f"{directory} has no meta.properties with cluster.id and node.id", "Name the data directory of a broker.")


def _ends_on_disk(
    directory: Path, pinned: Path, logs: "dict[TopicPartition, PinnedLog]"
) -> "dict[TopicPartition, int]":
    """The ends of the logs of a broker that does not run."""
    from fencepost.broker.log.backup.pins import pin_all
    from fencepost.broker.log.storage.layout import core_directories

    for number, path in core_directories(directory).items():
        pin_all(path, pinned / str(number), logs)
    return {tp: _end_of(log) for tp, log in logs.items()}


def _end_of(log: "PinnedLog") -> int:
    """Behind the last whole batch."""
    last = max(log.bases)
    return max((offset for _, offset, _ in log.batches(last)), default=last)


async def _cut(
    kafka: "Client", directory: Path, pinned: Path, logs: "dict[TopicPartition, PinnedLog]", identity: tuple[str, int]
) -> "dict[TopicPartition, int] | _Refusal":
    """Link all files, then ask the broker for the ends of all logs; again, until the links reach those ends."""
    import trio

    from fencepost.broker.log.backup.pins import partitions_in, pin_all, uncovered

    admin = kafka.admin()
    described = await admin.describe_cluster()
    if (described.cluster_id, [one.broker_id for one in described.brokers]) != (identity[0], [identity[1]]):
        return _Refusal(
            f"the broker is of cluster {described.cluster_id}, and {directory} belongs to cluster {identity[0]}",
            "Name the broker of this directory with --bootstrap.",
        )
    missing: Any = []
    for _ in range(ATTEMPTS):
        await trio.to_thread.run_sync(pin_all, directory, pinned, logs)
        ends = await _ends(admin, logs)
        missing = await trio.to_thread.run_sync(uncovered, logs, ends)
        missing += [name for name in partitions_in(directory) if not (pinned / name).exists()]
        if not missing:
            return ends
    return _Refusal(
        f"segments are begun quicker than they can be linked: {', '.join(map(str, missing[:5]))}",
        "Try again when less is written, or raise segment.bytes of these topics.",
    )


async def _ends(admin: "Admin", logs: "dict[TopicPartition, PinnedLog]") -> "dict[TopicPartition, int]":
    """The high watermarks of all logs at one instant: the broker answers one request in one step.

    Partitions of deleted topics are left out, and asked again without them: one instant has all others.
    """
    from fencepost.broker.metadata.log import METADATA_PARTITION
    from fencepost.client.admin import ItemsFailedError
    from fencepost.protocol.errors import ErrorCode

    while True:
        asked = [tp for tp in logs if tp != METADATA_PARTITION]
        try:
            found = await admin.list_offsets(asked, isolation="read_uncommitted")
        except ItemsFailedError as error:
            if any(one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in error.errors.values()):
                raise
            for tp in error.errors:
                del logs[tp]
            continue
        return {tp: place.offset for tp, place in found.items()}


def _report(manifest: "Manifest", seconds: float, as_json: bool, what: str) -> None:
    if as_json:
        facts = {name: value for name, value in manifest._asdict().items() if name != "files"}
        print_json({**facts, "files": len(manifest.files), "size_bytes": manifest.size_bytes, "seconds": seconds})
        return
    size = f"{manifest.size_bytes / _MIB:.1f} MiB in {seconds:.1f} s"
    click.echo(f"{counted(len(manifest.ends), 'partition')}, {counted(len(manifest.files), 'file')}, {size}: {what}")
