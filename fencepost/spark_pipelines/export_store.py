"""The directory of an export. One rename publishes each batch together with its position.

    TARGET/batch=00000000/part-....parquet     what `spark.read.parquet(TARGET)` reads
    TARGET/batch=00000000/_manifest.json       its first and last offsets, and the files with their sizes
    TARGET/_staging-...                        a batch that is being written; readers skip names that begin with _
    TARGET/_lock                               allows one exporter at a time

A directory is renamed as a whole, so files and position appear together or not at all. A reader never sees a part of
a batch. A killed exporter continues after the last published batch.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.offsets import Offsets, OffsetTree, offsets_of
from fencepost.spark_pipelines.errors import PipelineError

MANIFEST = "_manifest.json"
_BATCH = re.compile(r"batch=([0-9]{8,})")
_STAGING, _LOCK = "_staging-", "_lock"
_FORMAT, _VERSION = "fencepost export", 1


@dataclass(frozen=True)
class Manifest:
    """One batch. It holds the offsets from `begin` to before `end`, by topic and partition.

    `what` describes the records and their shape. An export continues only with the same `what`. `topic_ids` are hex
    strings by topic name.
    """

    batch: int
    begin: OffsetTree
    end: OffsetTree
    rows: int
    files: dict[str, int]
    """File name to size in bytes."""
    what: dict[str, Any]
    cluster_id: str
    topic_ids: dict[str, str]
    written: str = ""

    def ends(self) -> Offsets:
        return offsets_of(self.end)


class ExportStore:
    """The directory of an export. This process holds its lock from `open` to `close`."""

    def __init__(self, target: Path, lock_fd: int) -> None:
        self.target = target
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, target: Path | str) -> ExportStore:
        """Create the directory if it does not exist, lock it, and delete the unfinished batches of killed exporters.

        Raises PipelineError if the target is an object store or another exporter holds the lock; OSError.
        """
        if "://" in str(target):
            raise PipelineError(
                f"{target}: files and position are published by renaming a directory, which object stores cannot do."
                " Export into a table there (--format delta, or `delta_table`), or to a local or mounted directory"
            )
        path = Path(target).resolve()
        path.mkdir(parents=True, exist_ok=True)
        fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise PipelineError(f"another export writes to {path}: wait for it, or stop it") from None
        for left in path.glob(f"{_STAGING}*"):
            shutil.rmtree(left)
        return cls(path, fd)

    def close(self) -> None:
        os.close(self._lock_fd)

    def last(self) -> Manifest | None:
        """The last published batch; None before the first. Raises PipelineError if the directory holds other files."""
        numbers = [int(found[1]) for child in self.target.iterdir() if (found := _BATCH.fullmatch(child.name))]
        if numbers:
            return read_manifest(self.target / batch_name(max(numbers)))
        others = sorted(child.name for child in self.target.iterdir() if not child.name.startswith(("_", ".")))
        if others:
            raise PipelineError(
                f"{self.target} holds {others[0]}, which is not a file of an export: name an empty directory"
            )
        return None

    def staging(self) -> Path:
        """The path for a new batch. The directory does not exist yet."""
        return self.target / f"{_STAGING}{uuid.uuid4().hex}"

    def stage(self, frame: Any) -> Path:
        """Let Spark write a DataFrame into a new directory. Raises PipelineError if it wrote on other machines."""
        staging = self.staging()
        frame.write.parquet(staging.as_uri())
        if not (staging / "_SUCCESS").exists():
            raise PipelineError(
                f"Spark's executors do not write to this machine's {self.target}: mount it on all of them"
            )
        for extra in [*staging.glob(".*"), staging / "_SUCCESS"]:
            extra.unlink()
        return staging

    def rows(self, staging: Path) -> int:
        """The number of staged rows."""
        from pyarrow import parquet

        return sum(parquet.read_metadata(path).num_rows for path in staging.iterdir())

    def sizes(self, staging: Path) -> dict[str, int]:
        """The staged files' sizes in bytes, by name."""
        return {path.name: path.stat().st_size for path in sorted(staging.iterdir())}

    def discard(self, staging: Path) -> None:
        shutil.rmtree(staging)

    def publish(self, staging: Path, manifest: Manifest) -> Path:
        """Publish the staged files and their position durably (fsync). Raises PipelineError, OSError."""
        stamped = {**asdict(manifest), "written": datetime.now(UTC).isoformat(timespec="milliseconds")}
        document = {"format": _FORMAT, "version": _VERSION, **stamped}
        (staging / MANIFEST).write_text(json.dumps(document, indent=1), encoding="utf-8")
        for path in staging.iterdir():
            _sync(path)
        _sync(staging)
        place = self.target / batch_name(manifest.batch)
        try:
            os.rename(staging, place)
        except OSError as error:
            if place.exists():
                shutil.rmtree(staging)
                raise PipelineError(
                    f"{place} was published by another export; the copy of this export was deleted"
                ) from error
            raise
        _sync(self.target)
        return place


def read_manifest(batch: Path) -> Manifest:
    """The manifest of a published batch. Raises PipelineError if it cannot be read."""
    try:
        tree = json.loads((batch / MANIFEST).read_text(encoding="utf-8"))
        if tree.pop("format") != _FORMAT or tree.pop("version") != _VERSION:
            raise PipelineError(f"{batch / MANIFEST} was written by another version of fencepost")
        return Manifest(**tree)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{batch / MANIFEST} cannot be read ({error}): restore it from a backup") from error


def manifests(target: Path | str) -> list[Manifest]:
    """The manifests of all published batches, in order. Raises PipelineError."""
    batches = sorted(child for child in Path(target).iterdir() if _BATCH.fullmatch(child.name))
    return [read_manifest(batch) for batch in batches]


def batch_name(number: int) -> str:
    """The name of a batch's directory. Spark reads it as a partition column `batch`."""
    return f"batch={number:08d}"


def next_ends(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Ends for at most `most` offsets, in proportion to the backlogs, but at least one offset per partition."""
    left = {tp: max(0, end[tp] - begin[tp]) for tp in end}
    total = sum(left.values())
    if total <= most:
        return dict(end)
    return {tp: begin[tp] + (max(1, most * size // total) if size else 0) for tp, size in left.items()}


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


__all__ = ["ExportStore", "Manifest", "batch_name", "manifests", "next_ends", "read_manifest"]
