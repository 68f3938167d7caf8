"""Where an export keeps its files: published batch by batch, each with its position, by one rename.

    TARGET/batch=00000000/part-....parquet     what `spark.read.parquet(TARGET)` reads
    TARGET/batch=00000000/_manifest.json       from which offsets to which, and the files with their sizes
    TARGET/_staging-...                        a batch in the making; readers pass over names that begin with _
    TARGET/_lock                               one exporter at a time

Files and position appear in the same moment or not at all, because a directory is renamed as a whole. A reader sees no
half of a batch, and an exporter that was killed goes on behind the last batch that is there.
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
    """One batch. `begin` and `end` are offsets by topic and partition, `end` is the next to be read.

    `what` says which records in which shape; an export goes on only with the same. `topic_ids` are by name, in hex.
    """

    batch: int
    begin: OffsetTree
    end: OffsetTree
    rows: int
    files: dict[str, int]
    """Name and bytes."""
    what: dict[str, Any]
    cluster_id: str
    topic_ids: dict[str, str]
    written: str = ""

    def ends(self) -> Offsets:
        """Where the next batch begins."""
        return offsets_of(self.end)


class ExportStore:
    """The directory of an export, locked for this process from `open` to `close`."""

    def __init__(self, target: Path, lock_fd: int) -> None:
        self.target = target
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, target: Path | str) -> ExportStore:
        """Make the directory where there is none, lock it, and clear away what a killed exporter left.

        Raises PipelineError where it is no file system of this machine or another exporter is at work; OSError.
        """
        if "://" in str(target):
            raise PipelineError(
                f"{target}: files and position are published by renaming a directory, which object stores cannot do."
                " Export to a local or mounted directory, and copy finished batch=... directories from there"
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
        """Let others in."""
        os.close(self._lock_fd)

    def last(self) -> Manifest | None:
        """The last batch that was published; None before the first. Raises PipelineError for files of somebody else."""
        numbers = [int(found[1]) for child in self.target.iterdir() if (found := _BATCH.fullmatch(child.name))]
        if numbers:
            return read_manifest(self.target / batch_name(max(numbers)))
        others = sorted(child.name for child in self.target.iterdir() if not child.name.startswith(("_", ".")))
        if others:
            raise PipelineError(
                f"{self.target} holds {others[0]}, which is none of an export's files: name an empty directory"
            )
        return None

    def staging(self) -> Path:
        """The path of a new directory, which is not made yet."""
        return self.target / f"{_STAGING}{uuid.uuid4().hex}"

    def publish(self, staging: Path, manifest: Manifest) -> Path:
        """Make the staged files and their position count, both at once and for good (fsync). Raises OSError."""
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
    """The manifest of a published batch. Raises PipelineError where it is none, or a file of the batch is missing."""
    try:
        tree = json.loads((batch / MANIFEST).read_text(encoding="utf-8"))
        if tree.pop("format") != _FORMAT or tree.pop("version") != _VERSION:
            raise PipelineError(f"{batch / MANIFEST} was written by another version of fencepost")
        return Manifest(**tree)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{batch / MANIFEST} cannot be read ({error}): restore it from a backup") from error


def manifests(target: Path | str) -> list[Manifest]:
    """All batches that are there, by number. Raises PipelineError."""
    batches = sorted(child for child in Path(target).iterdir() if _BATCH.fullmatch(child.name))
    return [read_manifest(batch) for batch in batches]


def batch_name(number: int) -> str:
    """The directory of a batch: by Spark's way of naming, a column `batch`."""
    return f"batch={number:08d}"


def next_ends(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Ends that take in `most` offsets at the utmost (one per partition at the least), shared out by what is left."""
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
