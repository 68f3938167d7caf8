"""fencepost: exactly-once messaging for Python teams, without a JVM.

The client's public names live here and are imported on first use, so that `import fencepost` alone stays cheap.
"""

from typing import TYPE_CHECKING, Any

from fencepost.version import __version__

if TYPE_CHECKING:
    from fencepost.client import (
        AbortableError,
        Admin,
        AuthenticationError,
        AuthorizationError,
        Client,
        CommittedOffset,
        ConfigError,
        Consumer,
        ConsumerBatch,
        ConsumerRecord,
        Delivery,
        DeliveryError,
        FatalError,
        FencedError,
        GroupMetadata,
        ItemErrors,
        KafkaError,
        OAuthToken,
        OutcomeUnknown,
        PreparedTransaction,
        Producer,
        ReadError,
        RecordMetadata,
        RetriableError,
        SerializationError,
        Transaction,
        TransactionalProducer,
        TransactionTooLarge,
        TwoPhaseProducer,
        WholeTransaction,
    )
    from fencepost.protocol.errors import ErrorCode
    from fencepost.protocol.topics import IsolationLevel, TopicPartition

_HOME = {
    "AbortableError": "client",
    "Admin": "client",
    "AuthenticationError": "client",
    "AuthorizationError": "client",
    "Client": "client",
    "CommittedOffset": "client",
    "ConfigError": "client",
    "Consumer": "client",
    "ConsumerBatch": "client",
    "ConsumerRecord": "client",
    "Delivery": "client",
    "DeliveryError": "client",
    "ErrorCode": "protocol.errors",
    "FatalError": "client",
    "FencedError": "client",
    "GroupMetadata": "client",
    "IsolationLevel": "protocol.topics",
    "ItemErrors": "client",
    "KafkaError": "client",
    "OAuthToken": "client",
    "OutcomeUnknown": "client",
    "PreparedTransaction": "client",
    "Producer": "client",
    "ReadError": "client",
    "RecordMetadata": "client",
    "RetriableError": "client",
    "SerializationError": "client",
    "TopicPartition": "protocol.topics",
    "Transaction": "client",
    "TransactionTooLarge": "client",
    "TransactionalProducer": "client",
    "TwoPhaseProducer": "client",
    "WholeTransaction": "client",
}

__all__ = [
    "AbortableError",
    "Admin",
    "AuthenticationError",
    "AuthorizationError",
    "Client",
    "CommittedOffset",
    "ConfigError",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "Delivery",
    "DeliveryError",
    "ErrorCode",
    "FatalError",
    "FencedError",
    "GroupMetadata",
    "IsolationLevel",
    "ItemErrors",
    "KafkaError",
    "OAuthToken",
    "OutcomeUnknown",
    "PreparedTransaction",
    "Producer",
    "ReadError",
    "RecordMetadata",
    "RetriableError",
    "SerializationError",
    "TopicPartition",
    "Transaction",
    "TransactionTooLarge",
    "TransactionalProducer",
    "TwoPhaseProducer",
    "WholeTransaction",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"fencepost.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
