"""`fencepost backup` and `fencepost restore`: a data directory, copied while its broker runs."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.plain_text import counted
from fencepost.cli.progress import progress_bar

if TYPE_CHECKING:
    from fencepost.broker.log.backup.manifest import Manifest
    from fencepost.broker.log.backup.pins import PinnedLog
    from fencepost.protocol.topics import TopicPartition

PINNED = ".backup"
"""The directory of the links, in the data directory: hard links need the same file system."""
_MIB = 1 << 20


@click.command(short_help="Copy a data directory while its broker runs.")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("target", type=click.Path(path_type=Path))
@broker_options
def backup(directory: Path, target: Path, broker: Broker) -> None:
    """Copy a data directory as it is at one instant, while its broker runs. TARGET must not exist.

    The broker is asked for the ends of all logs at one instant. The backup has all that was acknowledged before, and
    nothing that came later: transactions are whole, group offsets fit the records. The cores of a broker on several
    cores pause together for that instant, for 50 ms or as long as it takes, up to 0.8 s. Files that do not change any
    more are hard links, if TARGET is on the same file system: copy the backup to another disk. A stopped broker is not
    asked.

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
    from fencepost.broker.log.backup.pins import PinnedLog
    from fencepost.broker.log.storage.layout import CORE_STARTS
    from fencepost.broker.log.storage.lock import DirectoryInUse, all_locked
    from fencepost.broker.metadata.log import METADATA_PARTITION
    from fencepost.cli.backup.cut import Refusal, cut, on_the_way, pin

    small = writing.small_files(directory)
    cluster_id, node_id = _identity(directory, small)
    logs: dict[TopicPartition, PinnedLog] = {}
    try:
        with all_locked(directory, shared=True):
            if names := on_the_way(directory):
                fail(f"partitions are on their way to another core: {', '.join(names)}", "Start the broker first.")
            pin(directory, pinned, logs, small)
            ends: Mapping[TopicPartition, int] = {tp: _end_of(log) for tp, log in logs.items()}
    except DirectoryInUse:
        found = broker.run("backup", lambda kafka: cut(kafka, directory, pinned, logs, small, (cluster_id, node_id)))
        if isinstance(found, Refusal):
            fail(*found)
        ends = found
    metadata = logs.get(METADATA_PARTITION)
    if metadata is None:
        fail(f"{directory} has no log of the metadata", "Name the data directory of a broker.")
    metadata.pin()  # behind the cut: what the logs refer to is there
    if CORE_STARTS in small:  # behind the cut, too: no epoch of a coordinator in the logs may be higher
        small[CORE_STARTS] = (directory / CORE_STARTS).read_bytes()
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


def _end_of(log: "PinnedLog") -> int:
    """Behind the last whole batch."""
    last = max(log.bases)
    return max((offset for _, offset, _ in log.batches(last)), default=last)


def _report(manifest: "Manifest", seconds: float, as_json: bool, what: str) -> None:
    if as_json:
        facts = {name: value for name, value in manifest._asdict().items() if name != "files"}
        print_json({**facts, "files": len(manifest.files), "size_bytes": manifest.size_bytes, "seconds": seconds})
        return
    size = f"{manifest.size_bytes / _MIB:.1f} MiB in {seconds:.1f} s"
    click.echo(f"{counted(len(manifest.ends), 'partition')}, {counted(len(manifest.files), 'file')}, {size}: {what}")
