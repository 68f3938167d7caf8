"""The client for programs without an event loop: the same names, blocking. One thread per Client runs trio.

Whatever the async client has is here, by the same name and with the same arguments; `async with` is `with`, `await`
falls away, `async for` is `for`. Records cross between the threads in batches, never one by one.
"""

from fencepost.sync.client import Admin, Client
from fencepost.sync.consumer import Consumer, WholeTransactions
from fencepost.sync.loop import TimedOutError, fail_after
from fencepost.sync.sending import (
    Delivery,
    Producer,
    ProducerBatch,
    Transaction,
    TransactionalProducer,
    TransactionBlock,
    TwoPhaseProducer,
)

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Delivery",
    "Producer",
    "ProducerBatch",
    "TimedOutError",
    "Transaction",
    "TransactionBlock",
    "TransactionalProducer",
    "TwoPhaseProducer",
    "WholeTransactions",
    "fail_after",
]
