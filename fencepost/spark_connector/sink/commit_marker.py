"""The commit marker of a sink: which batch of which query its last transaction wrote. No I/O.

The sink's group commits it as an offset in the transaction that writes the batch (TxnOffsetCommit). So it is committed
if and only if the batch is. The offset is the number of the next batch. Its metadata holds the other fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from fencepost.client.core.group_types import CommittedOffset
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.sink.encode import SinkError

_FORMAT = "fencepost-spark/1"
NO_BATCH = -1


class BatchId(NamedTuple):
    """One micro-batch. `query_id` belongs to the query's checkpoint; `batch_id` counts from 0."""

    query_id: str
    batch_id: int


class Marker(NamedTuple):
    """The last written batch and its query; `batch_id` is NO_BATCH before the first batch.

    `owner` identifies the driver that may decide about prepared transactions (see lanes.py); empty without twoPhase.
    """

    place: TopicPartition
    query_id: str
    batch_id: int
    owner: str = ""

    def committed(self) -> CommittedOffset:
        """The offset and metadata to commit."""
        note = {"format": _FORMAT, "query": self.query_id, "batch": self.batch_id}
        if self.owner:
            note["owner"] = self.owner
        return CommittedOffset(self.batch_id + 1, -1, json.dumps(note))


def find_marker(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Marker | None:
    """The newest commit marker among a group's offsets. Raises SinkError if the group holds other offsets."""
    found: list[Marker] = []
    for place, committed in offsets.items():
        marker = _parsed(place, committed)
        if marker is None:
            raise SinkError(
                f"group {group!r} holds an offset of {place} that is not a commit marker of this sink: consumers use"
                " this group. Give the sink another kafka.transactional.id"
            )
        found.append(marker)
    return max(found, key=lambda one: one.batch_id, default=None)


def _parsed(place: TopicPartition, committed: CommittedOffset) -> Marker | None:
    try:
        note = json.loads(committed.metadata)
        if note["format"] != _FORMAT:
            return None
        return Marker(place, note["query"], note["batch"], note.get("owner", ""))
    except (ValueError, KeyError, TypeError):
        return None


def is_done(sink: str, marker: Marker | None, batch: BatchId, first_batch: int | None) -> bool:
    """Whether the batch was written before; False if it must be written now.

    Raises SinkError if this is unknown: the commit marker of an earlier batch is missing, belongs to another query, or
    is of a later batch.
    """
    if marker is None or marker.batch_id == NO_BATCH:
        if batch.batch_id in (0, first_batch):
            return False
        raise SinkError(
            f"the sink {sink!r} has no commit marker, although this is batch {batch.batch_id} of query"
            f" {batch.query_id}, so it is unknown whether the batch was written. Without kafka.transactional.id the"
            " sink's name comes from the location of the checkpoint: if that was moved or copied, set"
            " kafka.transactional.id to the former name (`fencepost group list` shows it). The commit marker expires"
            f" after offsets.retention.minutes without a batch. It is also missing if the topic or the group {sink!r}"
            " was deleted, or if the query had another sink before. Check whether the topic ends with batch"
            f" {batch.batch_id - 1}; if so, start once with option firstBatch = {batch.batch_id}"
        )
    if marker.query_id != batch.query_id:
        raise SinkError(
            f"the sink {sink!r} was last written by query {marker.query_id} (batch {marker.batch_id}), and this is"
            f" batch {batch.batch_id} of query {batch.query_id}: its checkpoint was deleted, or two queries share a"
            f" name. To continue, restore the old checkpoint. To start again and write all records again, delete the"
            f" group {sink!r} (fencepost group delete, kafka-consumer-groups.sh --delete --group). For a second query"
            f" set another kafka.transactional.id"
        )
    if marker.batch_id > batch.batch_id:
        raise SinkError(
            f"the sink {sink!r} has batch {marker.batch_id} of this query already, and this is batch {batch.batch_id}:"
            " another driver is ahead, or the checkpoint is an old copy, whose batches hold other rows now."
            " Stop the other driver, or restore the newer checkpoint"
        )
    return marker.batch_id == batch.batch_id
