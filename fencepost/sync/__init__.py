"""The blocking client, for programs without an event loop. One thread per Client runs trio.

It has all names of the async client, with the same arguments. Write `with` for `async with` and `for` for `async for`,
and leave out `await`. Records cross between the threads in batches, never one by one.
"""

from fencepost.sync.client import Admin, Client
from fencepost.sync.consumer import Consumer, WholeTransactions
from fencepost.sync.loop import TimedOutError, fail_after
from fencepost.sync.queue import Message, Queue
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
    "Message",
    "Producer",
    "ProducerBatch",
    "Queue",
    "TimedOutError",
    "Transaction",
    "TransactionBlock",
    "TransactionalProducer",
    "TwoPhaseProducer",
    "WholeTransactions",
    "fail_after",
]
