"""A producer whose transactions acknowledge what a member of a share group holds, over the wire."""

from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api1093_txn_share_acknowledge as acknowledging
from tests.kit.share_members import Ack, ShareMember
from tests.kit.wire import Wire, batch_of

TV2_PRODUCE, TV2_END = 12, 5
UNSTABLE = {"unstable.api.versions.enable": "true"}


class Transactions:
    """One transactional id, one transaction after the other (TV2)."""

    def __init__(self, wire: Wire, name: str, timeout_ms: int = 60_000) -> None:
        self.wire, self.name = wire, name
        self.identity = wire.init_producer_id(name, timeout_ms)
        self._sequence = 0

    def produce(self, topic: str, value: bytes) -> ErrorCode:
        """One record in the first partition of a topic: always the same, for the sequence numbers."""
        batch = batch_of(
            value,
            transactional=True,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=self._sequence,
        )
        answer = self.wire.produce(topic, batch, version=TV2_PRODUCE, transactional_id=self.name)
        self._sequence += 1
        return ErrorCode(answer.error_code)

    def ack(self, member: ShareMember, *acks: Ack) -> list[ErrorCode]:
        """TxnShareAcknowledge of what a member holds: the error of the whole request, or that of each partition."""
        answer = self.wire.call(ApiKey.TXN_SHARE_ACKNOWLEDGE, 0, self.request(member, *acks))
        if answer.error_code:
            return [ErrorCode(answer.error_code)]
        return [ErrorCode(part.error_code) for topic in answer.responses for part in topic.partitions]

    def request(self, member: ShareMember, *acks: Ack) -> Any:
        """What a client sends."""
        return txn_acknowledge_request(self.name, self.identity, member, *acks)

    def end(self, *, commit: bool) -> ErrorCode:
        """EndTxn; the next transaction has the epoch that it answers."""
        answer = self.wire.end_txn(self.name, self.identity, commit=commit, version=TV2_END)
        if not answer.error_code:
            self.identity, self._sequence = (answer.producer_id, answer.producer_epoch), 0
        return ErrorCode(answer.error_code)


def txn_acknowledge_request(name: str, identity: tuple[int, int], member: ShareMember, *acks: Ack) -> Any:
    """TxnShareAcknowledge of what a member holds, by the transactional id with this producer id and epoch."""
    parts = [
        acknowledging.TxnShareAcknowledgePartition(
            partition_index=part,
            acknowledgement_batches=[
                acknowledging.AcknowledgementBatch(
                    first_offset=ack.first, last_offset=ack.last, acknowledge_types=[ack.kind]
                )
                for ack in acks
                if ack.partition == part
            ],
        )
        for part in sorted({ack.partition for ack in acks})
    ]
    return acknowledging.TxnShareAcknowledgeRequest(
        transactional_id=name,
        group_id=member.group,
        producer_id=identity[0],
        producer_epoch=identity[1],
        member_id=member.member,
        topics=[acknowledging.TxnShareAcknowledgeTopic(topic_id=member.topic_id, partitions=parts)],
    )
