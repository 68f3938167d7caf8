"""One open transaction, as the producer and its coordinators see it."""

from typing import NamedTuple

from fencepost.client.consumer.committer import MOMENTS, Committer, PendingCommit
from fencepost.client.core.held_records import HeldRecord
from fencepost.client.errors import AbortableError, FatalError, KafkaError, RecordRejectedError
from fencepost.client.producer.deliveries import Tracker
from fencepost.client.transactions.requests import abortable
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class PreparedTransaction(NamedTuple):
    """A prepared transaction, named by the identity in its records; no other transaction has the same.

    `str(prepared)` is the text to store with the decision, "PRODUCER_ID:EPOCH" as in Kafka; `parse` reads it again.
    """

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> "PreparedTransaction":
        """The value of such a text. Raises ValueError."""
        producer_id, epoch = text.split(":")
        return cls(int(producer_id), int(epoch))


class OpenTransaction:
    """The records and offsets of one transaction, and its first error. `tv2`: by the protocol of KIP-890.

    `committers` are of the consumers that rewind if it aborts; `pending_commits` are the offsets that are part of it.
    """

    def __init__(self, tv2: bool, committer: Committer | None) -> None:
        self.tv2 = tv2
        self.tracker = Tracker(self.fail)
        self.partitions: set[TopicPartition] = set()
        self.pending: set[TopicPartition] = set()
        """Partitions that the coordinator does not know yet (TV1)."""
        self.groups: set[str] = set()
        self.committers: list[Committer] = [] if committer is None else [committer]
        self.pending_commits: list[PendingCommit] = []
        self.acknowledged: list[HeldRecord] = []
        """Records of queues whose acknowledgements count once it commits."""
        self.error: KafkaError | None = None
        self.begun = next(MOMENTS)
        self.ending = False
        self.over = False
        self.requests_under_way = 0
        self.committed: bool | None = None

    def end(self, committed: bool | None) -> None:
        """It is over; None while its outcome is unknown."""
        self.over = True
        self.committed = committed
        for pending_commit in self.pending_commits:
            if committed:
                pending_commit.keep()
            else:
                pending_commit.drop()
        self.pending_commits.clear()
        for record in self.acknowledged:
            record.result = ErrorCode.NONE if committed else ErrorCode.TRANSACTION_ABORTABLE

    def check(self) -> None:
        """Raise the transaction's error, if it has one."""
        if self.over or self.ending:
            raise RuntimeError("the transaction is over")
        if self.error is not None:
            raise self.error

    def fail(self, error: KafkaError) -> None:
        """The transaction cannot commit any more; the first reason counts."""
        if self.error is None:
            own = isinstance(error, FatalError | AbortableError | RecordRejectedError)
            self.error = error if own else abortable(error)
