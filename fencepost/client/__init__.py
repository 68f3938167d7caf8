"""The client that a program uses, on trio. Names are imported on first use: the package's modules need one another."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, ItemErrors
    from fencepost.client.client import Client
    from fencepost.client.consumed import ConsumerBatch, ConsumerRecord
    from fencepost.client.consumer import Consumer
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
    from fencepost.client.positions import OffsetAndTimestamp
    from fencepost.client.producer import Delivery, Producer, RecordMetadata
    from fencepost.client.producer_metrics import ProducerMetrics
    from fencepost.client.read_errors import (
        CorruptRecords,
        DeserializationFailed,
        LogTruncated,
        OffsetOutOfRange,
        ReadError,
    )
    from fencepost.client.serializers import SerializationError
    from fencepost.client.transaction import Transaction
    from fencepost.client.two_phase import PreparedTransaction, TwoPhaseProducer
    from fencepost.client.txn import TransactionalProducer
    from fencepost.client.txn_requests import CommittedOffset, GroupMetadata
    from fencepost.client.whole_transactions import TransactionTooLarge, WholeTransaction, WholeTransactions

_HOME = {
    "AbortableError": "errors",
    "Admin": "admin",
    "AuthenticationError": "errors",
    "AuthorizationError": "errors",
    "Client": "client",
    "CommittedOffset": "txn_requests",
    "ConfigError": "errors",
    "ConnectionLost": "errors",
    "Consumer": "consumer",
    "ConsumerBatch": "consumed",
    "ConsumerRecord": "consumed",
    "CorruptRecords": "read_errors",
    "Delivery": "producer",
    "DeliveryError": "errors",
    "DeserializationFailed": "read_errors",
    "FatalError": "errors",
    "FencedError": "errors",
    "GroupMetadata": "txn_requests",
    "Interest": "group.interest",
    "ItemErrors": "admin",
    "KafkaError": "errors",
    "LogTruncated": "read_errors",
    "OffsetAndTimestamp": "positions",
    "OffsetOutOfRange": "read_errors",
    "OAuthToken": "core.sasl",
    "OutcomeUnknown": "errors",
    "PreparedTransaction": "two_phase",
    "Producer": "producer",
    "ProducerMetrics": "producer_metrics",
    "ReadError": "read_errors",
    "RecordMetadata": "producer",
    "RetriableError": "errors",
    "SerializationError": "serializers",
    "Transaction": "transaction",
    "TransactionTooLarge": "whole_transactions",
    "TransactionalProducer": "txn",
    "TwoPhaseProducer": "two_phase",
    "WholeTransaction": "whole_transactions",
    "WholeTransactions": "whole_transactions",
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
