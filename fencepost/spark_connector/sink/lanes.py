"""twoPhase: each task prepares its own transaction, and the driver decides about all of them at once (KIP-939).

The `owner` in the commit marker is the driver that may decide. A driver makes its claim before each batch: it writes
itself as owner, in a transaction of the sink's transactional id. It decides in another transaction, and only while it
is still the owner. A driver that was replaced therefore cannot decide for transactions that its successor has aborted.

Three rules hold everywhere:

- A driver commits a lane's transaction only if a decision names its producer id and epoch.
- A driver aborts a lane's transaction only after two steps: it takes the lane over, and then checks that it is still
  the owner. The transaction is then older than its claim.
- A task never ends a transaction that it finds in a lane. It uses another lane.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

from fencepost.client.errors import AuthorizationError, FatalError, FencedError
from fencepost.protocol.admin_enums import OPEN_STATES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.sink.commit import (
    main_producer,
    marker_place,
    read_marker,
    require_topic,
    transact,
    translate_client_errors,
)
from fencepost.spark_connector.sink.commit_marker import NO_BATCH, BatchId, Marker, is_done
from fencepost.spark_connector.sink.encode import SinkError
from fencepost.spark_connector.sink.options import SinkOptions

log = logging.getLogger(__name__)

_PARALLEL_COMMITS = 8
_ATTEMPTS = 5
_MAX_LANES = 1000
STABLE_SECONDS = 120.0
"""How long a claim waits for other sinks' open transactions. Those of dead drivers time out earlier."""
_POLL_SECONDS = 0.2
Decision = Mapping[str, str]
"""Transactional id -> "PRODUCER_ID:EPOCH" of the transaction to commit."""


class Claim(NamedTuple):
    """A driver's right to decide for one batch: its token as the owner, and the batch in the previous commit marker."""

    owner: str
    query_id: str
    batch_id: int

    def has(self, batch: BatchId) -> bool:
        return self.query_id == batch.query_id and self.batch_id == batch.batch_id


class PreparedLane(NamedTuple):
    """A task's prepared transaction: its transactional id and "PRODUCER_ID:EPOCH"."""

    name: str
    identity: str


def claim(kafka: Any, options: SinkOptions) -> Claim:
    """Become the owner, and end the open transactions of earlier drivers as they were decided (rows T22, T23).

    Raises SinkError if the broker does not support two-phase commit.
    """
    with translate_client_errors(options), main_producer(kafka, options) as producer:
        _probe(kafka, options)
        require_topic(kafka, options)
        _make_decision_topic(kafka, options)
        before = read_marker(kafka, options)
        place = marker_place(options, before, ())
        mine = Claim(
            secrets.token_hex(8),
            before.query_id if before is not None else "",
            before.batch_id if before is not None else NO_BATCH,
        )
        transact(producer, lambda txn: None, options.group, Marker(place, mine.query_id, mine.batch_id, mine.owner))
        clear_lanes(kafka, options, mine, read_decision(kafka, options))
        return mine


def clear_lanes(kafka: Any, options: SinkOptions, mine: Claim, decided: Decision) -> None:
    """End every open transaction of the lanes: commit the decided ones, abort the others. Only for the owner."""
    left = open_lanes(kafka, options)
    with ExitStack() as stack:
        producers = [stack.enter_context(_two_phase(kafka, options, name)) for name in left]
        if producers and not is_owner(kafka, options, mine):
            raise FencedError("a newer driver owns the sink's prepared transactions")
        for name, producer in zip(left, producers, strict=True):
            if producer.prepared is not None:
                committed = producer.complete(decided.get(name))
                log.warning(
                    "the transaction of %s was left open, and is now %s", name, "committed" if committed else "aborted"
                )


def open_lanes(kafka: Any, options: SinkOptions) -> list[str]:
    """The sink's lanes with an open transaction."""
    with kafka.admin() as admin:
        found = admin.list_transactions(states=OPEN_STATES)
    return [one.transactional_id for one in found if one.transactional_id.startswith(_lane_prefix(options))]


def open_lane(kafka: Any, options: SinkOptions, partition: int, attempt: int) -> tuple[str, Any]:
    """A lane without an open transaction, for one task: (its transactional id, a producer to open with `with`).

    The search opens each lane once. This fences another producer of the lane.
    """
    for number in range(attempt, attempt + _MAX_LANES):
        name = f"{_lane_prefix(options)}{partition}-{number}"
        with _two_phase(kafka, options, name) as producer:
            if producer.prepared is None:
                return name, _two_phase(kafka, options, name)
    raise SinkError(f"{_MAX_LANES} transactions are open for task {partition} of {options.transactional_id!r}")


def decide(kafka: Any, options: SinkOptions, mine: Claim, batch: BatchId | None, lanes: Sequence[PreparedLane]) -> bool:
    """Commit all lanes together with the commit marker. Returns False if the batch was written before.

    The decision is durable once it is in the decision topic. After that any later owner can finish it.
    """
    with translate_client_errors(options):
        with main_producer(kafka, options) as producer:
            marker = read_marker(kafka, options)
            if marker is None or marker.owner != mine.owner:
                raise FencedError("the sink's prepared transactions belong to a newer driver")
            if batch is not None and is_done(options.transactional_id, marker, batch, options.first_batch):
                return False
            decision = {lane.name: lane.identity for lane in lanes}
            record = {"batch": batch.batch_id if batch else None, "query": batch.query_id if batch else None}
            value = json.dumps({**record, "lanes": decision}).encode()
            done = batch or BatchId(marker.query_id, marker.batch_id)
            transact(
                producer,
                lambda txn: txn.send(options.decision_topic, value, key=options.transactional_id.encode(), partition=0),
                options.group,
                Marker(marker.place, done.query_id, done.batch_id, mine.owner),
            )
        with ThreadPoolExecutor(_PARALLEL_COMMITS) as pool:
            for finished in [pool.submit(_commit_lane, kafka, options, lane) for lane in lanes]:
                finished.result()
    return True


def read_decision(kafka: Any, options: SinkOptions) -> Decision:
    """The last decision of this sink. Only the owner may rely on it.

    It reads the topic up to its current end, also past the start of another sink's open transaction (row I2). A
    missed decision would make the driver abort transactions that must commit. If the remaining records are aborted, no
    record arrives, so it checks the position regularly. Raises SinkError if it does not reach the end in time.
    """
    from fencepost.sync import TimedOutError, fail_after

    place = TopicPartition(options.decision_topic, 0)
    found: Decision = {}
    until = time.monotonic() + STABLE_SECONDS
    with kafka.consumer(isolation="read_committed") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets(place, isolation=IsolationLevel.READ_UNCOMMITTED)[place]
        batches = iter(consumer.batches())
        while end and consumer.position(place) < end:
            try:
                with fail_after(_POLL_SECONDS):
                    records = next(batches)
            except TimedOutError:
                if time.monotonic() > until:
                    raise _not_stable(place, consumer.position(place), end) from None
                continue
            for record in records:
                if record.key == options.transactional_id.encode() and record.value is not None:
                    found = json.loads(record.value)["lanes"]
    return found


def _not_stable(place: TopicPartition, position: int, end: int) -> SinkError:
    return SinkError(
        f"the last decision cannot be read: {place} could be read up to offset {position} of {end} for"
        f" {STABLE_SECONDS:g} s. Another sink with the same decisionTopic may have an open transaction there:"
        " `fencepost txn why` shows it. Nothing is lost; start the query again when that transaction has ended"
    )


def _commit_lane(kafka: Any, options: SinkOptions, lane: PreparedLane) -> None:
    """Commit the lane's transaction if it is still the decided one. If not, another driver has committed it."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with _two_phase(kafka, options, lane.name) as producer:
                if producer.prepared is not None and str(producer.prepared) == lane.identity:
                    producer.complete(lane.identity)
                return
        except FencedError:  # an abandoned task attempt opened the lane at the same time
            if attempt == _ATTEMPTS:
                raise


def is_owner(kafka: Any, options: SinkOptions, mine: Claim) -> bool:
    """Whether no other driver has made a claim since then."""
    marker = read_marker(kafka, options)
    return marker is not None and marker.owner == mine.owner


def _lane_prefix(options: SinkOptions) -> str:
    return f"{options.transactional_id}.lane-"


def _two_phase(kafka: Any, options: SinkOptions, name: str) -> Any:
    return kafka.two_phase_producer(name)


def _probe(kafka: Any, options: SinkOptions) -> None:
    """Raise SinkError if the broker cannot keep a prepared transaction."""
    try:
        with _two_phase(kafka, options, f"{options.transactional_id}.probe"):
            return
    except (AuthorizationError, FatalError) as error:
        if not isinstance(error, AuthorizationError) and error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise SinkError(
            "twoPhase needs two settings of the broker, both off by default: fencepost serve --set"
            " unstable.api.versions.enable=true --set transaction.two.phase.commit.enable=true. If both are on, this"
            f" user lacks the rights on transactional id {options.transactional_id!r}. Apache Kafka cannot keep"
            " prepared transactions (KIP-939). Without twoPhase the sink works with every broker"
        ) from error


def _make_decision_topic(kafka: Any, options: SinkOptions) -> None:
    with kafka.admin() as admin:
        admin.create_topics(
            options.decision_topic, partitions=1, configs={"cleanup.policy": "compact"}, if_not_exists=True
        )
