"""The manifests of an export's batches."""

from __future__ import annotations

from typing import Any

from fencepost.spark_pipelines.export_store import Manifest

WHAT: dict[str, Any] = {"topics": ["t"]}


def manifest_of(number: int, begin: int, end: int) -> Manifest:
    return Manifest(number, {"t": {"0": begin}}, {"t": {"0": end}}, end - begin, {"part": 1}, WHAT, "c", {"t": "1"})
