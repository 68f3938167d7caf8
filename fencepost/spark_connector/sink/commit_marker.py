"""The mark that a sink leaves in each of its transactions: which batch of which query was the last. Pure.

It is an offset that the sink's group commits in the transaction that writes the batch (TxnOffsetCommit), so it counts
exactly when the batch does. The offset is the number of the next batch; its note says the rest.
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
    """One micro-batch: `query_id` lives as long as the query's checkpoint, `batch_id` counts from 0."""

    query_id: str
    batch_id: int


class Marker(NamedTuple):
    """The last batch that was written, and by whom; `batch_id` is NO_BATCH while there was none.

    `owner` is who may decide about prepared transactions (see sink_lanes); empty where there are none.
    """

    place: TopicPartition
    query_id: str
    batch_id: int
    owner: str = ""

    def committed(self) -> CommittedOffset:
        """As it is stored."""
        note = {"format": _FORMAT, "query": self.query_id, "batch": self.batch_id}
        if self.owner:
            note["owner"] = self.owner
        return CommittedOffset(self.batch_id + 1, -1, json.dumps(note))


def find_marker(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Marker | None:
    """The youngest mark among a group's offsets. Raises SinkError where others keep offsets in the group."""
    found: list[Marker] = []
    for place, committed in offsets.items():
        marker = _parsed(place, committed)
        if marker is None:
            raise SinkError(
                f"group {group!r} holds an offset of {place} that is no mark of this sink: consumers use that name."
                " Give the sink another kafka.transactional.id"
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
    """Whether the batch has been written already; False if it is to be written now.

    Raises SinkError where neither can be said: no mark although there were batches before, another query's mark, or
    the mark of a later batch.
    """
    if marker is None or marker.batch_id == NO_BATCH:
        if batch.batch_id in (0, first_batch):
            return False
        raise SinkError(
            f"the sink {sink!r} has no mark, although this is batch {batch.batch_id} of query {batch.query_id}: whether"
            f" it was written cannot be told. The mark is gone when offsets.retention.minutes ended without a batch,"
            f" when the topic or the group {sink!r} was deleted, or the query wrote elsewhere before. Look whether the"
            f" topic ends with batch {batch.batch_id - 1}; if so, start once with option firstBatch = {batch.batch_id}"
        )
    if marker.query_id != batch.query_id:
        raise SinkError(
            f"the sink {sink!r} was last written by query {marker.query_id} (batch {marker.batch_id}), and this is"
            f" batch {batch.batch_id} of query {batch.query_id}: its checkpoint was deleted, or two queries share a"
            f" name. To begin anew, and write again whatever the query reads again, delete the group {sink!r}"
            f" (fencepost group delete, kafka-consumer-groups.sh --delete --group). Bring the old checkpoint back to"
            f" go on where it ended. For a second query give another kafka.transactional.id"
        )
    if marker.batch_id > batch.batch_id:
        raise SinkError(
            f"the sink {sink!r} has batch {marker.batch_id} of this query already, and this is batch {batch.batch_id}:"
            " another driver is further on, or the checkpoint is an old copy, whose batches hold other rows now."
            " Stop the one, or bring the young checkpoint back"
        )
    return marker.batch_id == batch.batch_id
