"""Notifies the leaders of partitions that a marker was committed there: they read it before they answer.

The hint is a ListOffsets request with the id of this broker, as brokers of Kafka send it. The leader reads the rows of
those logs before it answers. If the hint is lost, it finds the marker when it looks, or commits, next.
"""

import logging
from collections.abc import Collection, Mapping

import trio

from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.topics import IsolationLevel, TopicPartition

LIST_OFFSETS_VERSION = 7
LATEST = -1
NOTIFY_SECONDS = 1.0
"""How long the end of a transaction waits for the leaders; they learn of it in any case."""
RETRY_SECONDS = 0.02

logger = logging.getLogger(__name__)


async def notify_leaders(place: Place, topic_ids: Mapping[TopicPartition, bytes]) -> None:
    """Return when the leaders of these partitions of other brokers have read the newest markers, or cannot be asked.

    A partition may be changing hands. A next leader that loaded it before the marker was committed has to read it, too:
    it would take the marker for the end of the producer's next transaction, and refuse its first batch.
    """
    leaders = {tp: place.leader(topic_id, tp.partition).leader for tp, topic_id in topic_ids.items()}
    with trio.move_on_after(NOTIFY_SECONDS):
        while moved := await _notify_all(place, leaders):
            await trio.sleep(RETRY_SECONDS)
            try:
                leader = await place.newest_leaders()
            except PeerUnavailable as error:
                logger.debug("the leaders of %d partitions are not known: %s", len(moved), error)
                return
            leaders = {tp: leader(topic_ids[tp], tp.partition).leader for tp in moved}
            # What still has no leader is loaded later, with the marker.
            leaders = {tp: broker for tp, broker in leaders.items() if broker is not None}


async def _notify_all(place: Place, leaders: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
    """Notify each leader once; return the partitions that have none, or another one."""
    moved = [tp for tp, broker in leaders.items() if broker is None]
    by_broker: dict[int, list[TopicPartition]] = {}
    for tp, broker in leaders.items():
        if broker not in (None, place.node_id):
            by_broker.setdefault(broker, []).append(tp)
    async with trio.open_nursery() as nursery:
        for broker, partitions in sorted(by_broker.items()):
            nursery.start_soon(_notify, place, broker, partitions, moved)
    return moved


async def _notify(
    place: Place, broker: int, partitions: Collection[TopicPartition], moved: list[TopicPartition]
) -> None:
    """Notify one broker. Adds the partitions that it does not lead to `moved`."""
    topics: dict[str, ListOffsetsTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
        topic.partitions.append(ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST))
    request = ListOffsetsRequest(
        replica_id=place.node_id, isolation_level=IsolationLevel.READ_COMMITTED, topics=list(topics.values())
    )
    try:
        answer = await place.links.ask(broker, request, LIST_OFFSETS_VERSION)
    except PeerUnavailable as error:
        logger.debug("broker %d finds %d markers when it looks next: %s", broker, len(partitions), error)
        return
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                moved.append(TopicPartition(topic.name, one.partition_index))
