"""The requests of a queue to the leaders of its partitions: ShareFetch and ShareAcknowledge."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from fencepost.client.config import QueueConfig
from fencepost.client.core.acknowledgements import Acknowledgement, in_batches
from fencepost.client.core.held_records import Sent
from fencepost.client.core.share_session import FetchChanges, Place
from fencepost.protocol.messages import api78_share_fetch as api78
from fencepost.protocol.messages import api79_share_acknowledge as api79

SINCE = 2
"""The version with record limits (KIP-1206) and renewals (KIP-1222): Kafka 4.2."""
RECORD_LIMIT = 1
"""The acquire mode in which `max_records` is never exceeded (KIP-1206)."""
BatchT = TypeVar("BatchT")
Acknowledgements = Mapping[Place, Sequence[Sent]]


class Identity(NamedTuple):
    """The member that a request is from."""

    group_id: str
    member_id: str


def fetch_request(
    who: Identity,
    config: QueueConfig,
    changes: FetchChanges,
    acknowledgements: Acknowledgements,
    max_records: int,
    max_wait_ms: int,
    now: float,
) -> api78.ShareFetchRequest:
    """A ShareFetch for the session's partitions; `max_records` 0 acquires nothing."""
    topics: dict[bytes, list[api78.FetchPartition]] = {}
    for place in sorted(changes.added | acknowledgements.keys()):
        batches = _batches(acknowledgements.get(place, ()), now, api78.AcknowledgementBatch)
        part = api78.FetchPartition(partition_index=place[1], acknowledgement_batches=batches)
        topics.setdefault(place[0], []).append(part)
    fetches = max_records > 0
    return api78.ShareFetchRequest(
        group_id=who.group_id,
        member_id=who.member_id,
        share_session_epoch=changes.epoch,
        max_wait_ms=max_wait_ms if fetches else 0,
        min_bytes=config.fetch_min_bytes if fetches else 0,
        max_bytes=config.fetch_max_bytes if fetches else 0,
        max_records=max_records,
        batch_size=max_records,
        share_acquire_mode=RECORD_LIMIT,
        topics=[api78.FetchTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        forgotten_topics_data=[
            api78.ForgottenTopic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in _by_topic(changes.forgotten).items()
        ],
        delays=True,
    )


def acknowledge_request(
    who: Identity, epoch: int, acknowledgements: Acknowledgements, now: float, *, renews: bool
) -> api79.ShareAcknowledgeRequest:
    """A ShareAcknowledge of the session at `epoch`."""
    topics: dict[bytes, list[api79.AcknowledgePartition]] = {}
    for place, sent in acknowledgements.items():
        batches = _batches(sent, now, api79.AcknowledgementBatch)
        part = api79.AcknowledgePartition(partition_index=place[1], acknowledgement_batches=batches)
        topics.setdefault(place[0], []).append(part)
    return api79.ShareAcknowledgeRequest(
        group_id=who.group_id,
        member_id=who.member_id,
        share_session_epoch=epoch,
        is_renew_ack=renews,
        topics=[api79.AcknowledgeTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
    )


def _batches(sent: Iterable[Sent], now: float, batch: Callable[..., BatchT]) -> list[BatchT]:
    """The acknowledgements of one partition, sent now, in the batches of one API."""
    found = in_batches(
        Acknowledgement(one.record.offset, one.kind, math.ceil(max(one.record.held_until - now, 0) * 1000))
        for one in sent
    )
    return [
        batch(first_offset=first, last_offset=last, acknowledge_types=list(types), delay_ms=delay_ms)
        for first, last, types, delay_ms in found
    ]


def _by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(places):
        topics.setdefault(topic_id, []).append(number)
    return topics
