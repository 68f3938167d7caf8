"""twoPhase: each task has a prepared transaction of its own, the driver decides about all of them at once (KIP-939).

Who may decide is told by the mark's `owner`. A driver claims it before each batch, in a transaction of the sink's own
transactional id, and decides in another one that it may only begin while the mark still names it. So a driver that was
taken for dead and wakes up finds that it owns nothing any more; it cannot decide for transactions that its successor
has aborted. Three rules hold everywhere:

- A lane's transaction is committed only if it is the very one (producer id, epoch) that a decision names.
- A lane's transaction is aborted only by an owner that took the lane over before it looked whether it still is one:
  what it holds then was left over from before its claim.
- A task never ends what it finds in a lane. It takes another lane.
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
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.sink.commit import (
    main_producer,
    marker_place,
    need_topic,
    read_marker,
    transact,
    translate_client_errors,
)
from fencepost.spark_connector.sink.commit_marker import NO_BATCH, BatchId, Marker, is_done
from fencepost.spark_connector.sink.encode import SinkError
from fencepost.spark_connector.sink.options import SinkOptions

log = logging.getLogger(__name__)

_AT_ONCE = 8
_TRIES = 5
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_MOST_LANES = 1000
STABLE_SECONDS = 120.0
"""So long a claim waits for other sinks' decisions to be stable: longer than the transaction of one that died stays."""
_LOOK_SECONDS = 0.2
Decision = Mapping[str, str]
"""Transactional id -> "PRODUCER_ID:EPOCH" of the transaction that is to commit."""


class Claim(NamedTuple):
    """A driver's right to decide for one batch: its token in the mark, and what the mark said before."""

    owner: str
    query_id: str
    batch_id: int

    def has(self, batch: BatchId) -> bool:
        """Whether the batch was decided before."""
        return self.query_id == batch.query_id and self.batch_id == batch.batch_id


class PreparedLane(NamedTuple):
    """A task's prepared transaction: its transactional id, and its "PRODUCER_ID:EPOCH"."""

    name: str
    identity: str


def claim(kafka: Any, options: SinkOptions) -> Claim:
    """Become the one who decides, after everything that was left behind is ended as it was decided (rows T22, T23).

    Raises SinkError where the broker has no two-phase commit.
    """
    with translate_client_errors(options), main_producer(kafka, options) as producer:
        _probe(kafka, options)
        need_topic(kafka, options)
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
    """End every transaction that stands open in a lane: commit what was decided, abort the rest. For the owner."""
    left = open_lanes(kafka, options)
    with ExitStack() as stack:
        held = [stack.enter_context(_two_phase(kafka, options, name)) for name in left]
        if held and not is_owner(kafka, options, mine):
            raise FencedError("somebody newer owns the sink's prepared transactions")
        for name, producer in zip(left, held, strict=True):
            if producer.prepared is not None:
                committed = producer.complete(decided.get(name))
                log.warning("%s was left open and is %s", name, "committed" if committed else "aborted")


def open_lanes(kafka: Any, options: SinkOptions) -> list[str]:
    """The sink's lanes that have a transaction open."""
    with kafka.admin() as admin:
        found = admin.list_transactions(states=_OPEN_STATES)
    return [one.transactional_id for one in found if one.transactional_id.startswith(_lane_prefix(options))]


def open_lane(kafka: Any, options: SinkOptions, partition: int, attempt: int) -> tuple[str, Any]:
    """A lane in which nothing stands open, for one task: (its transactional id, the producer to open with `with`).

    Opened once already, to look into it; whoever else holds it is fenced by that.
    """
    for number in range(attempt, attempt + _MOST_LANES):
        name = f"{_lane_prefix(options)}{partition}-{number}"
        with _two_phase(kafka, options, name) as producer:
            if producer.prepared is None:
                return name, _two_phase(kafka, options, name)
    raise SinkError(f"{_MOST_LANES} transactions stand open for task {partition} of {options.transactional_id!r}")


def decide(kafka: Any, options: SinkOptions, mine: Claim, batch: BatchId | None, lanes: Sequence[PreparedLane]) -> bool:
    """Commit all lanes as one, and leave the mark; False if the batch was there already.

    The decision is durable when it is in the decision topic. What comes after may be done by anybody who claims.
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
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for finished in [pool.submit(_commit_lane, kafka, options, lane) for lane in lanes]:
                finished.result()
    return True


def read_decision(kafka: Any, options: SinkOptions) -> Decision:
    """What was decided last; only its owner may rely on it.

    All that stands in the topic now must be read, also what another sink's open transaction still hides (row I2): a
    decision that went unseen would be taken for none, and what it commits be aborted. Where the rest is aborted, no
    record comes that would tell of its end, so the position is looked at time and again. Raises SinkError where it
    does not get there.
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
                with fail_after(_LOOK_SECONDS):
                    records = next(batches)
            except TimedOutError:
                if time.monotonic() > until:
                    raise _unstable(place, consumer.position(place), end) from None
                continue
            for record in records:
                if record.key == options.transactional_id.encode() and record.value is not None:
                    found = json.loads(record.value)["lanes"]
    return found


def _unstable(place: TopicPartition, position: int, end: int) -> SinkError:
    return SinkError(
        f"the last decision cannot be read: {place} could be read up to offset {position} of {end} for"
        f" {STABLE_SECONDS:g} s. Perhaps it is held there by a transaction that is open, of another sink with the same"
        " decisionTopic: `fencepost txn why` tells whose. Nothing is lost; start the query again then"
    )


def _commit_lane(kafka: Any, options: SinkOptions, lane: PreparedLane) -> None:
    """Commit the lane's transaction if it is still the one that was decided; if not, somebody has done so before."""
    for attempt in range(1, _TRIES + 1):
        try:
            with _two_phase(kafka, options, lane.name) as producer:
                if producer.prepared is not None and str(producer.prepared) == lane.identity:
                    producer.complete(lane.identity)
                return
        except FencedError:  # a task that was given up looked into the lane meanwhile
            if attempt == _TRIES:
                raise


def is_owner(kafka: Any, options: SinkOptions, mine: Claim) -> bool:
    """Whether nobody has claimed since."""
    marker = read_marker(kafka, options)
    return marker is not None and marker.owner == mine.owner


def _lane_prefix(options: SinkOptions) -> str:
    return f"{options.transactional_id}.lane-"


def _two_phase(kafka: Any, options: SinkOptions, name: str) -> Any:
    return kafka.two_phase_producer(name)


def _probe(kafka: Any, options: SinkOptions) -> None:
    """Raise SinkError where the broker cannot keep a prepared transaction."""
    try:
        with _two_phase(kafka, options, f"{options.transactional_id}.probe"):
            return
    except (AuthorizationError, FatalError) as error:
        if not isinstance(error, AuthorizationError) and error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise SinkError(
            "twoPhase needs two settings of the broker, both off by default: fencepost serve --set"
            " unstable.api.versions.enable=true --set transaction.two.phase.commit.enable=true. Where both are on, this"
            f" user has no right to transactional id {options.transactional_id!r}. Apache Kafka cannot keep prepared"
            " transactions (KIP-939). Without twoPhase the sink works with every broker"
        ) from error


def _make_decision_topic(kafka: Any, options: SinkOptions) -> None:
    with kafka.admin() as admin:
        admin.create_topic(
            options.decision_topic, partitions=1, configs={"cleanup.policy": "compact"}, if_not_exists=True
        )
