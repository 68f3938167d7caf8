"""fencepost: exactly-once messaging for Python teams, without a JVM.

The client's public names live here and are imported on first use, so that `import fencepost` alone stays cheap.
"""

from typing import TYPE_CHECKING, Any

from fencepost.version import __version__

if TYPE_CHECKING:
    from fencepost.client import (
        AbortableError,
        AcknowledgementError,
        Admin,
        AuthenticationError,
        AuthorizationError,
        Client,
        ClientOptions,
        CommittedOffset,
        ConfigError,
        ConnectionLostError,
        Consumer,
        ConsumerBatch,
        ConsumerOptions,
        ConsumerRecord,
        CorruptRecordsError,
        Delivery,
        DeliveryError,
        DeserializationError,
        FatalError,
        FencedError,
        GroupMetadata,
        ItemsFailedError,
        KafkaError,
        LogTruncatedError,
        Message,
        OAuthToken,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        PreparedTransaction,
        Producer,
        ProducerOptions,
        Queue,
        QueueOptions,
        ReadError,
        RecordMetadata,
        RecordRejectedError,
        RejectedRecord,
        RetriableError,
        SerializationError,
        Transaction,
        TransactionalProducer,
        TransactionalProducerOptions,
        TransactionTooLargeError,
        TwoPhaseProducer,
        WholeTransaction,
        WouldBlockError,
        not_before,
    )
    from fencepost.protocol.compression import Compression
    from fencepost.protocol.errors import ErrorCode
    from fencepost.protocol.topics import IsolationLevel, TopicPartition

_ELSEWHERE = {
    "Compression": "protocol.compression",
    "ErrorCode": "protocol.errors",
    "IsolationLevel": "protocol.topics",
    "TopicPartition": "protocol.topics",
}
"""What is not in `client`."""

__all__ = [
    "AbortableError",
    "AcknowledgementError",
    "Admin",
    "AuthenticationError",
    "AuthorizationError",
    "Client",
    "ClientOptions",
    "CommittedOffset",
    "Compression",
    "ConfigError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerBatch",
    "ConsumerOptions",
    "ConsumerRecord",
    "CorruptRecordsError",
    "Delivery",
    "DeliveryError",
    "DeserializationError",
    "ErrorCode",
    "FatalError",
    "FencedError",
    "GroupMetadata",
    "IsolationLevel",
    "ItemsFailedError",
    "KafkaError",
    "LogTruncatedError",
    "Message",
    "OAuthToken",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "PreparedTransaction",
    "Producer",
    "ProducerOptions",
    "Queue",
    "QueueOptions",
    "ReadError",
    "RecordMetadata",
    "RecordRejectedError",
    "RejectedRecord",
    "RetriableError",
    "SerializationError",
    "TopicPartition",
    "Transaction",
    "TransactionTooLargeError",
    "TransactionalProducer",
    "TransactionalProducerOptions",
    "TwoPhaseProducer",
    "WholeTransaction",
    "WouldBlockError",
    "__version__",
    "not_before",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"fencepost.{_ELSEWHERE.get(name, 'client')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
