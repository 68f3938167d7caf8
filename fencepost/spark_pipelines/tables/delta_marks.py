"""The marks of a Delta table, read from its log in one go.

deltalake searches the log again for each mark, so that thousands of them take minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.(?:parquet|([0-9]{10})\.([0-9]{10})\.parquet)")


def marks_in_log(files: Any, version: int, names: Collection[str]) -> dict[str, int] | None:
    """The marks at this version of the table; None if the log has a form that is not read here.

    `files` is an Arrow file system whose root is the table's directory.
    """
    from pyarrow.fs import FileSelector

    there = {one.base_name for one in files.get_file_info(FileSelector("_delta_log"))}
    checkpoint, parts = _newest_checkpoint(there, version)
    commits = [f"{number:020d}.json" for number in range(checkpoint + 1, version + 1)]
    if not there.issuperset(commits):
        return None  # there is a checkpoint of another form, or a clean-up is under way
    found: dict[str, int] = {}
    for part in parts:
        found |= _in_checkpoint(files, f"_delta_log/{part}")
    for commit in commits:
        with files.open_input_stream(f"_delta_log/{commit}") as stream:
            found |= _in_commit(bytes(stream.read()))
    return {name: found[name] for name in names if name in found}


def _newest_checkpoint(there: Collection[str], version: int) -> tuple[int, list[str]]:
    """Version and files of the newest whole checkpoint; -1 if there is none."""
    by_version: dict[int, list[str]] = {}
    for name in sorted(there):
        found = CHECKPOINT.fullmatch(name)
        if found is None or int(found[1]) > version:
            continue
        if found[3] is None:
            by_version[int(found[1])] = [name]
            continue
        whole = [f"{found[1]}.checkpoint.{part:010d}.{found[3]}.parquet" for part in range(1, int(found[3]) + 1)]
        if set(whole) <= set(there):
            by_version[int(found[1])] = whole
    newest = max(by_version, default=-1)
    return newest, by_version.get(newest, [])


def _in_checkpoint(files: Any, path: str) -> dict[str, int]:
    from pyarrow import parquet

    with files.open_input_file(path) as stream:
        file = parquet.ParquetFile(stream)
        if "txn" not in file.schema_arrow.names:
            return {}
        rows = file.read(columns=["txn"]).column("txn").drop_null().to_pylist()
    return {row["appId"]: row["version"] for row in rows if row["appId"] is not None}


def _in_commit(data: bytes) -> dict[str, int]:
    actions = [json.loads(line) for line in data.splitlines() if b'"txn"' in line]
    marks = [action["txn"] for action in actions if "txn" in action]
    return {mark["appId"]: mark["version"] for mark in marks}


__all__ = ["marks_in_log"]
