"""The client that a program uses, under asyncio or trio.

Names are imported on first use: the package's modules need one another.
"""

from typing import TYPE_CHECKING, Any

if __name__ != "fencepost.client":
    raise ImportError("import fencepost.client: the folder client is a link to it")

if TYPE_CHECKING:
    from fencepost.client.admin import Admin as Admin
    from fencepost.client.admin import ItemsFailedError as ItemsFailedError
    from fencepost.client.client import Client as Client
    from fencepost.client.consumer.consumed import ConsumerBatch as ConsumerBatch
    from fencepost.client.consumer.consumed import ConsumerRecord as ConsumerRecord
    from fencepost.client.consumer.consumed import Record as Record
    from fencepost.client.consumer.consumer import Consumer as Consumer
    from fencepost.client.consumer.metrics import ConsumerMetrics as ConsumerMetrics
    from fencepost.client.consumer.positions import OffsetAndTimestamp as OffsetAndTimestamp
    from fencepost.client.consumer.read_errors import BatchTooLargeError as BatchTooLargeError
    from fencepost.client.consumer.read_errors import CorruptRecordsError as CorruptRecordsError
    from fencepost.client.consumer.read_errors import DeserializationError as DeserializationError
    from fencepost.client.consumer.read_errors import LogTruncatedError as LogTruncatedError
    from fencepost.client.consumer.read_errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from fencepost.client.consumer.read_errors import ReadError as ReadError
    from fencepost.client.consumer.unit_reader import TransactionTooLargeError as TransactionTooLargeError
    from fencepost.client.consumer.whole_transaction import WholeTransaction as WholeTransaction
    from fencepost.client.consumer.whole_transactions import WholeTransactions as WholeTransactions
    from fencepost.client.core.group_types import CommittedOffset as CommittedOffset
    from fencepost.client.core.group_types import GroupMetadata as GroupMetadata
    from fencepost.client.core.partitioner import PartitionFunction as PartitionFunction
    from fencepost.client.core.partitions import PartitionInfo as PartitionInfo
    from fencepost.client.core.sasl import OAuthToken as OAuthToken
    from fencepost.client.errors import AbortableError as AbortableError
    from fencepost.client.errors import AuthenticationError as AuthenticationError
    from fencepost.client.errors import AuthorizationError as AuthorizationError
    from fencepost.client.errors import ConfigError as ConfigError
    from fencepost.client.errors import ConnectionLostError as ConnectionLostError
    from fencepost.client.errors import DeliveryError as DeliveryError
    from fencepost.client.errors import FatalError as FatalError
    from fencepost.client.errors import FencedError as FencedError
    from fencepost.client.errors import KafkaError as KafkaError
    from fencepost.client.errors import OutcomeUnknownError as OutcomeUnknownError
    from fencepost.client.errors import RecordRejectedError as RecordRejectedError
    from fencepost.client.errors import RejectedRecord as RejectedRecord
    from fencepost.client.errors import RetriableError as RetriableError
    from fencepost.client.errors import WouldBlockError as WouldBlockError
    from fencepost.client.group.subscription import Subscription as Subscription
    from fencepost.client.group.subscription import Topics as Topics
    from fencepost.client.keywords import AssignorName as AssignorName
    from fencepost.client.keywords import BlockingConsumerOptions as BlockingConsumerOptions
    from fencepost.client.keywords import BlockingRebalanceCallback as BlockingRebalanceCallback
    from fencepost.client.keywords import ClientOptions as ClientOptions
    from fencepost.client.keywords import CompressionName as CompressionName
    from fencepost.client.keywords import ConsumerOptions as ConsumerOptions
    from fencepost.client.keywords import Duration as Duration
    from fencepost.client.keywords import Isolation as Isolation
    from fencepost.client.keywords import OffsetPlace as OffsetPlace
    from fencepost.client.keywords import Overflow as Overflow
    from fencepost.client.keywords import ProducerOptions as ProducerOptions
    from fencepost.client.keywords import QueueOptions as QueueOptions
    from fencepost.client.keywords import RebalanceCallback as RebalanceCallback
    from fencepost.client.keywords import SaslMechanism as SaslMechanism
    from fencepost.client.keywords import SecurityProtocol as SecurityProtocol
    from fencepost.client.keywords import TransactionalProducerOptions as TransactionalProducerOptions
    from fencepost.client.network.security import TokenProvider as TokenProvider
    from fencepost.client.network.wire import Dial as Dial
    from fencepost.client.producer.deliveries import Delivery as Delivery
    from fencepost.client.producer.deliveries import RecordMetadata as RecordMetadata
    from fencepost.client.producer.metrics import ProducerMetrics as ProducerMetrics
    from fencepost.client.producer.producer import Producer as Producer
    from fencepost.client.producer.producer import ProducerBatch as ProducerBatch
    from fencepost.client.producer.record_serializer import Headers as Headers
    from fencepost.client.queues.message import AcknowledgementError as AcknowledgementError
    from fencepost.client.queues.message import Message as Message
    from fencepost.client.queues.metrics import QueueMetrics as QueueMetrics
    from fencepost.client.queues.queue import Queue as Queue
    from fencepost.client.queues.scheduling import not_before as not_before
    from fencepost.client.serializers import SerializationError as SerializationError
    from fencepost.client.transactions.open_transaction import PreparedTransaction as PreparedTransaction
    from fencepost.client.transactions.producer import TransactionalProducer as TransactionalProducer
    from fencepost.client.transactions.producer import TransactionBlock as TransactionBlock
    from fencepost.client.transactions.transaction import Transaction as Transaction
    from fencepost.client.transactions.two_phase import TwoPhaseProducer as TwoPhaseProducer

_HOME = {
    "AbortableError": "errors",
    "AcknowledgementError": "queues.message",
    "Admin": "admin",
    "AssignorName": "keywords",
    "AuthenticationError": "errors",
    "AuthorizationError": "errors",
    "BatchTooLargeError": "consumer.read_errors",
    "BlockingConsumerOptions": "keywords",
    "BlockingRebalanceCallback": "keywords",
    "Client": "client",
    "ClientOptions": "keywords",
    "CommittedOffset": "core.group_types",
    "CompressionName": "keywords",
    "ConfigError": "errors",
    "ConnectionLostError": "errors",
    "Consumer": "consumer.consumer",
    "ConsumerBatch": "consumer.consumed",
    "ConsumerMetrics": "consumer.metrics",
    "ConsumerOptions": "keywords",
    "ConsumerRecord": "consumer.consumed",
    "CorruptRecordsError": "consumer.read_errors",
    "Delivery": "producer.deliveries",
    "DeliveryError": "errors",
    "DeserializationError": "consumer.read_errors",
    "Dial": "network.wire",
    "Duration": "keywords",
    "FatalError": "errors",
    "FencedError": "errors",
    "GroupMetadata": "core.group_types",
    "Headers": "producer.record_serializer",
    "Isolation": "keywords",
    "ItemsFailedError": "admin",
    "KafkaError": "errors",
    "LogTruncatedError": "consumer.read_errors",
    "Message": "queues.message",
    "OAuthToken": "core.sasl",
    "OffsetAndTimestamp": "consumer.positions",
    "OffsetOutOfRangeError": "consumer.read_errors",
    "OffsetPlace": "keywords",
    "OutcomeUnknownError": "errors",
    "Overflow": "keywords",
    "PartitionFunction": "core.partitioner",
    "PartitionInfo": "core.partitions",
    "PreparedTransaction": "transactions.open_transaction",
    "Producer": "producer.producer",
    "ProducerBatch": "producer.producer",
    "ProducerMetrics": "producer.metrics",
    "ProducerOptions": "keywords",
    "Queue": "queues.queue",
    "QueueMetrics": "queues.metrics",
    "QueueOptions": "keywords",
    "ReadError": "consumer.read_errors",
    "RebalanceCallback": "keywords",
    "Record": "consumer.consumed",
    "RecordMetadata": "producer.deliveries",
    "RecordRejectedError": "errors",
    "RejectedRecord": "errors",
    "RetriableError": "errors",
    "SaslMechanism": "keywords",
    "SecurityProtocol": "keywords",
    "SerializationError": "serializers",
    "Subscription": "group.subscription",
    "TokenProvider": "network.security",
    "Topics": "group.subscription",
    "Transaction": "transactions.transaction",
    "TransactionBlock": "transactions.producer",
    "TransactionTooLargeError": "consumer.unit_reader",
    "TransactionalProducer": "transactions.producer",
    "TransactionalProducerOptions": "keywords",
    "TwoPhaseProducer": "transactions.two_phase",
    "WholeTransaction": "consumer.whole_transaction",
    "WholeTransactions": "consumer.whole_transactions",
    "WouldBlockError": "errors",
    "not_before": "queues.scheduling",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fencepost.client.{home}"), name)
