"""Messages of a queue that a transaction acknowledges: TxnShareAcknowledge, to the leaders of their partitions."""

from collections.abc import Iterable, Sequence
from typing import Any

from fencepost.client.core.acknowledgements import Acknowledgement, AcknowledgeType, in_batches
from fencepost.client.core.held_records import HeldRecord
from fencepost.client.core.txn_errors import TABLE, Meaning
from fencepost.client.core.txn_failures import raise_for
from fencepost.client.core.txn_state import Producer
from fencepost.client.errors import FatalError, code_of
from fencepost.client.network.cluster import Cluster
from fencepost.client.queues.message import Message
from fencepost.client.queues.share_requests import Identity
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api1093_txn_share_acknowledge as api1093
from fencepost.protocol.topics import TopicPartition

API = "TxnShareAcknowledge"
NEEDS = (
    "acknowledging messages in a transaction needs a broker of fencepost with unstable.api.versions.enable=true,"
    " and transaction.version 2; Apache Kafka has no such request"
)


class RecordsInTransaction:
    """Records of one queue that one transaction acknowledges alike, until their leaders have taken all of them."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        purpose: str,
        messages: Iterable[Message[Any, Any]],
        kind: AcknowledgeType,
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._purpose = purpose
        self._kind = kind
        self._left: dict[TopicPartition, list[HeldRecord]] = {}
        for message in messages:
            place = TopicPartition(message.topic, message.partition)
            self._left.setdefault(place, []).append(message._record)
            self._who = message._queue.who
        self._may_have_moved = False

    async def ask(self, producer: Producer) -> None:
        """Ask each leader once for what is left; the metadata is fetched again after a failure.

        Raises AbortableError (INVALID_RECORD_STATE: the lock of a record had ended), RetriableError, and FatalError
        for a broker without the request.
        """
        if self._may_have_moved:
            await self._cluster.refresh({place.topic for place in self._left})
        self._may_have_moved = True
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in self._left:
            by_leader.setdefault(await self._cluster.leader_of(place), []).append(place)
        for node, places in by_leader.items():
            await self._ask_leader(node, places, producer)

    async def _ask_leader(self, node: int, places: Sequence[TopicPartition], producer: Producer) -> None:
        connection = await self._cluster.connection(node, self._purpose)
        if connection.session.versions.get(ApiKey.TXN_SHARE_ACKNOWLEDGE, (0, -1))[1] < 0:
            raise FatalError(NEEDS, code=ErrorCode.UNSUPPORTED_VERSION, api=API, node=node)
        request = _request(self._id, producer, self._who, self._kind, [self._left[place] for place in places])
        response = await self._cluster.ask(node, request, purpose=self._purpose)
        code = code_of(response.error_code)
        raise_for(code, response.error_message or f"records for group {self._who.group_id!r}", API, node)
        codes = {
            (bytes(topic.topic_id), part.partition_index): code_of(part.error_code)
            for topic in response.responses
            for part in topic.partitions
        }
        worst: tuple[TopicPartition, ErrorCode] | None = None
        for place in places:
            code = codes.get(self._left[place][0].place, ErrorCode.UNKNOWN_SERVER_ERROR)
            if TABLE[API][code] is Meaning.DONE:
                del self._left[place]
            elif worst is None or worst[1].retriable:
                worst = place, code
        if worst is not None:
            raise_for(worst[1], f"records of {worst[0]} for group {self._who.group_id!r}", API, node)


def _request(
    transactional_id: str,
    producer: Producer,
    who: Identity,
    kind: AcknowledgeType,
    parts: Iterable[Sequence[HeldRecord]],
) -> api1093.TxnShareAcknowledgeRequest:
    topics: dict[bytes, list[api1093.TxnShareAcknowledgePartition]] = {}
    for records in parts:
        topic_id, number = records[0].place
        batches = [
            api1093.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types, _ in in_batches(Acknowledgement(record.offset, kind) for record in records)
        ]
        part = api1093.TxnShareAcknowledgePartition(partition_index=number, acknowledgement_batches=batches)
        topics.setdefault(topic_id, []).append(part)
    return api1093.TxnShareAcknowledgeRequest(
        transactional_id=transactional_id,
        group_id=who.group_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        member_id=who.member_id,
        topics=[api1093.TxnShareAcknowledgeTopic(topic_id=one, partitions=some) for one, some in topics.items()],
    )
