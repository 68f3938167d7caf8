"""The client that a program uses, on trio. Names are imported on first use: the package's modules need one another."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, ItemErrors
    from fencepost.client.client import Client
    from fencepost.client.consumed import ConsumerBatch, ConsumerRecord
    from fencepost.client.consumer import Consumer
    from fencepost.client.errors import (
        AbortableError,
        AuthenticationError,
        AuthorizationError,
        ConfigError,
        DeliveryError,
        FatalError,
        FencedError,
        KafkaError,
        OutcomeUnknown,
        RetriableError,
    )
    from fencepost.client.producer import Delivery, Producer, RecordMetadata
    from fencepost.client.transaction import Transaction
    from fencepost.client.two_phase import PreparedTransaction, TwoPhaseProducer
    from fencepost.client.txn import TransactionalProducer
    from fencepost.client.txn_requests import CommittedOffset, GroupMetadata

_HOME = {
    "AbortableError": "errors",
    "Admin": "admin",
    "AuthenticationError": "errors",
    "AuthorizationError": "errors",
    "Client": "client",
    "CommittedOffset": "txn_requests",
    "ConfigError": "errors",
    "Consumer": "consumer",
    "ConsumerBatch": "consumed",
    "ConsumerRecord": "consumed",
    "Delivery": "producer",
    "DeliveryError": "errors",
    "FatalError": "errors",
    "FencedError": "errors",
    "GroupMetadata": "txn_requests",
    "ItemErrors": "admin",
    "KafkaError": "errors",
    "OutcomeUnknown": "errors",
    "PreparedTransaction": "two_phase",
    "Producer": "producer",
    "RecordMetadata": "producer",
    "RetriableError": "errors",
    "Transaction": "transaction",
    "TransactionalProducer": "txn",
    "TwoPhaseProducer": "two_phase",
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
    "FatalError",
    "FencedError",
    "GroupMetadata",
    "ItemErrors",
    "KafkaError",
    "OutcomeUnknown",
    "PreparedTransaction",
    "Producer",
    "RecordMetadata",
    "RetriableError",
    "Transaction",
    "TransactionalProducer",
    "TwoPhaseProducer",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fencepost.client.{home}"), name)
