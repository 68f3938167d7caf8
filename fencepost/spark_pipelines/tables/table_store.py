"""An export into a table: the position of each partition is a mark of the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.offsets import Offsets, offsets_of, tree_of
from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.export_store import Manifest
from fencepost.spark_pipelines.tables.spark import stage
from fencepost.spark_pipelines.tables.table import NewFile, Table, number_of

_BATCH, _WHAT, _CLUSTER = "fencepost/export/batch", "fencepost/export/what", "fencepost/export/cluster"


class TableStore:
    """The table of an export. Commits of two exports are in conflict, so there is no lock."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._seen: dict[str, int] = {}

    @property
    def target(self) -> str:
        """For messages."""
        return self._table.name

    def close(self) -> None:
        """Nothing is open."""

    def last(
        self,
        partitions: Iterable[TopicPartition],
        what: Mapping[str, Any],
        cluster_id: str,
        topic_ids: Mapping[str, str],
    ) -> Manifest | None:
        """The last committed batch; None before the first.

        Raises PipelineError if the table holds an export of other records: other topics or another shape, another
        cluster, or a topic that was created again.
        """
        partitions = list(partitions)
        names = [name for tp in partitions for name in (begin_mark(tp), end_mark(tp))]
        topics = {topic: _id_mark(topic) for topic in topic_ids}
        self._seen = self._table.marks([_BATCH, _WHAT, _CLUSTER, *topics.values(), *names])
        number = self._seen.get(_BATCH)
        if number is None:
            return None
        start_again = "export into another table"
        if self._seen.get(_CLUSTER) != number_of(cluster_id):
            raise PipelineError(f"{self.target} was started with another cluster than {cluster_id}: {start_again}")
        if self._seen.get(_WHAT) != _what_number(what):
            raise PipelineError(
                f"{self.target} was started with other topics, another shape or other headers than"
                f" {json.dumps(dict(what))}: use the first ones again, or {start_again}"
            )
        for topic, mark in topics.items():
            if topic_ids[topic] and self._seen.get(mark) not in (None, number_of(topic_ids[topic])):
                raise PipelineError(f"topic {topic} was deleted and created again since the last export: {start_again}")
        ends = positions(self._seen, partitions, end_mark)
        return Manifest(number, {}, tree_of(ends), 0, {}, dict(what), cluster_id, dict(topic_ids))

    def stage(self, frame: Any) -> list[NewFile]:
        """Write the rows into files that the table does not hold yet."""
        return stage(frame, self._table)

    def rows(self, staged: list[NewFile]) -> int:
        return sum(file.rows for file in staged)

    def sizes(self, staged: list[NewFile]) -> dict[str, int]:
        return {file.path: file.size for file in staged}

    def discard(self, staged: list[NewFile]) -> None:
        self._table.discard(staged)

    def publish(self, staged: list[NewFile], manifest: Manifest) -> None:
        """Commit the staged files and the position. Raises PipelineError if another export was quicker."""
        marks = {_BATCH: manifest.batch, _WHAT: _what_number(manifest.what), _CLUSTER: number_of(manifest.cluster_id)}
        marks |= {_id_mark(topic): number_of(one) for topic, one in manifest.topic_ids.items() if one}
        marks |= {end_mark(tp): end for tp, end in manifest.ends().items()}
        begin = {begin_mark(tp): offset for tp, offset in offsets_of(manifest.begin).items()}
        marks |= {name: offset for name, offset in begin.items() if name not in self._seen}
        changed = {name: mark for name, mark in marks.items() if name == _BATCH or self._seen.get(name) != mark}
        try:
            self._table.append(staged, changed, {_BATCH: self._seen.get(_BATCH)})
        except PipelineError:
            self.discard(staged)
            raise
        self._seen |= marks


def begin_mark(tp: TopicPartition) -> str:
    """The name of the mark where the export of a partition began."""
    return f"fencepost/export/{tp.topic}/{tp.partition}/begin"


def end_mark(tp: TopicPartition) -> str:
    """The name of the mark up to where a partition is exported."""
    return f"fencepost/export/{tp.topic}/{tp.partition}/end"


def positions(marks: Mapping[str, int], partitions: Iterable[TopicPartition], name: Any) -> Offsets:
    """The offsets that marks hold; partitions without a mark are left out."""
    return {tp: marks[name(tp)] for tp in partitions if name(tp) in marks}


def _id_mark(topic: str) -> str:
    return f"fencepost/export/{topic}/id"


def _what_number(what: Mapping[str, Any]) -> int:
    return number_of(json.dumps(dict(what), sort_keys=True))
