"""Errors in the log that the program must handle; after each of them `seek` continues."""

from fencepost.client.errors import KafkaError
from fencepost.client.serializers import SerializationError
from fencepost.protocol.batch_header import OversizedBatch, UnreadableBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class ReadError(KafkaError):
    """Reading `partition` cannot continue at `position`. Every read raises this until the program seeks elsewhere."""

    def __init__(
        self, message: str, partition: TopicPartition, position: int, *, code: ErrorCode | None, node: int | None = None
    ) -> None:
        super().__init__(message, code=code, api="Fetch", node=node)
        self.partition = partition
        self.position = position


class OffsetOutOfRangeError(ReadError):
    """The position is not in the log (any more), or there is none, and `auto_offset_reset` is "none".

    `log_start_offset` is the log start offset that the broker returned, or -1.
    """

    def __init__(self, partition: TopicPartition, position: int, log_start_offset: int, node: int | None) -> None:
        where = f"; the log begins at {log_start_offset}" if log_start_offset >= 0 else ""
        what = f"offset {position} is not in the log{where}" if position >= 0 else "there is no position to start from"
        super().__init__(
            f"{partition}: {what}, and auto_offset_reset is 'none'",
            partition,
            position,
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
            node=node,
        )
        self.log_start_offset = log_start_offset


class LogTruncatedError(ReadError):
    """Records that were read are not part of the log any more: an unclean election truncated it (KIP-320).

    `divergent_offset` is the first offset at which the log differs from what was read, `divergent_epoch` the leader
    epoch before it; both None if the broker does not know the epoch. Raised if `auto_offset_reset` is "none".
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        divergent_offset: int | None,
        divergent_epoch: int | None,
        node: int | None,
    ) -> None:
        differs = f"the log differs from offset {divergent_offset}"
        where = "the broker does not know its epoch" if divergent_offset is None else differs
        super().__init__(
            f"{partition}: the log was truncated below position {position}: {where}",
            partition,
            position,
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
            node=node,
        )
        self.divergent_offset = divergent_offset
        self.divergent_epoch = divergent_epoch


class CorruptRecordsError(ReadError):
    """The bytes at the position are no batch, have a wrong CRC, or cannot be unpacked; `seek` behind them."""

    def __init__(self, partition: TopicPartition, position: int, why: str) -> None:
        super().__init__(f"{partition}: {why}", partition, position, code=ErrorCode.CORRUPT_MESSAGE)


class BatchTooLargeError(ReadError):
    """The records of the batch at the position decompress to more than `max_decompressed_bytes`.

    The batch is not damaged: a consumer with a higher `max_decompressed_bytes` reads it, `seek` behind it skips it.
    """

    def __init__(self, partition: TopicPartition, position: int, why: str) -> None:
        what = f"{partition}: {why}. Raise max_decompressed_bytes to read it, or seek to a higher offset to skip it"
        super().__init__(what, partition, position, code=None)


def unreadable(partition: TopicPartition, position: int, wrong: UnreadableBatch) -> ReadError:
    """The error of a program that reads this batch at `position`."""
    kind = BatchTooLargeError if isinstance(wrong, OversizedBatch) else CorruptRecordsError
    return kind(partition, position, str(wrong))


class DeserializationError(ReadError, SerializationError):
    """A key or value at `position` could not be deserialized; the deserializer's own error is the cause.

    A program that reads single records gets this record again: `seek` to `position + 1` skips it.
    """

    def __init__(self, partition: TopicPartition, position: int, why: str) -> None:
        super().__init__(f"{partition}: record {position}: {why}", partition, position, code=None)
