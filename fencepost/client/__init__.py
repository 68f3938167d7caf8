"""The client that a program uses, on trio. Names are imported on first use: the package's modules need one another."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, ItemErrors
    from fencepost.client.client import Client
    from fencepost.client.consumer.consumed import ConsumerBatch, ConsumerRecord
    from fencepost.client.consumer.consumer import Consumer
    from fencepost.client.consumer.positions import OffsetAndTimestamp
    from fencepost.client.consumer.read_errors import (
        CorruptRecords,
        DeserializationFailed,
        LogTruncated,
        OffsetOutOfRange,
        ReadError,
    )
    from fencepost.client.consumer.whole_transactions import TransactionTooLarge, WholeTransaction, WholeTransactions
    from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
    from fencepost.client.core.sasl import OAuthToken
    from fencepost.client.errors import (
        AbortableError,
        AuthenticationError,
        AuthorizationError,
        ConfigError,
        ConnectionLost,
        DeliveryError,
        FatalError,
        FencedError,
        KafkaError,
        OutcomeUnknown,
        RetriableError,
    )
    from fencepost.client.group.interest import Interest
    from fencepost.client.producer.deliveries import Delivery, RecordMetadata
    from fencepost.client.producer.metrics import ProducerMetrics
    from fencepost.client.producer.producer import Producer
    from fencepost.client.serializers import SerializationError
    from fencepost.client.transactions.open_transaction import PreparedTransaction
    from fencepost.client.transactions.producer import TransactionalProducer
    from fencepost.client.transactions.transaction import Transaction
    from fencepost.client.transactions.two_phase import TwoPhaseProducer

_HOME = {
    "AbortableError": "errors",
    "Admin": "admin",
    "AuthenticationError": "errors",
    "AuthorizationError": "errors",
    "Client": "client",
    "CommittedOffset": "core.group_types",
    "ConfigError": "errors",
    "ConnectionLost": "errors",
    "Consumer": "consumer.consumer",
    "ConsumerBatch": "consumer.consumed",
    "ConsumerRecord": "consumer.consumed",
    "CorruptRecords": "consumer.read_errors",
    "Delivery": "producer.deliveries",
    "DeliveryError": "errors",
    "DeserializationFailed": "consumer.read_errors",
    "FatalError": "errors",
    "FencedError": "errors",
    "GroupMetadata": "core.group_types",
    "Interest": "group.interest",
    "ItemErrors": "admin",
    "KafkaError": "errors",
    "LogTruncated": "consumer.read_errors",
    "OffsetAndTimestamp": "consumer.positions",
    "OffsetOutOfRange": "consumer.read_errors",
    "OAuthToken": "core.sasl",
    "OutcomeUnknown": "errors",
    "PreparedTransaction": "transactions.open_transaction",
    "Producer": "producer.producer",
    "ProducerMetrics": "producer.metrics",
    "ReadError": "consumer.read_errors",
    "RecordMetadata": "producer.deliveries",
    "RetriableError": "errors",
    "SerializationError": "serializers",
    "Transaction": "transactions.transaction",
    "TransactionTooLarge": "consumer.whole_transactions",
    "TransactionalProducer": "transactions.producer",
    "TwoPhaseProducer": "transactions.two_phase",
    "WholeTransaction": "consumer.whole_transactions",
    "WholeTransactions": "consumer.whole_transactions",
}

__all__ = [
    "AbortableError",
    "Admin",
    "AuthenticationError",
    "AuthorizationError",
    "Client",
    "CommittedOffset",
    "ConfigError",
    "ConnectionLost",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "CorruptRecords",
    "Delivery",
    "DeliveryError",
    "DeserializationFailed",
    "FatalError",
    "FencedError",
    "GroupMetadata",
    "Interest",
    "ItemErrors",
    "KafkaError",
    "LogTruncated",
    "OAuthToken",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "PreparedTransaction",
    "Producer",
    "ProducerMetrics",
    "ReadError",
    "RecordMetadata",
    "RetriableError",
    "SerializationError",
    "Transaction",
    "TransactionTooLarge",
    "TransactionalProducer",
    "TwoPhaseProducer",
    "WholeTransaction",
    "WholeTransactions",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fencepost.client.{home}"), name)
