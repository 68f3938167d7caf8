"""A process that copies one topic into another, exactly once, until it is killed: consume, transform, produce, commit.

python -m tests.kit.copy_worker ADDRESS SOURCE TARGET GROUP NAME [WHOLE]: NAME is the transactional id. With WHOLE each
transaction of the source is one transaction of the target (`consumer.transactions()`).
"""

import sys
from collections.abc import Iterable
from typing import Any

import trio

import fencepost
from fencepost import AbortableError, OutcomeUnknownError, RetriableError

SESSION_MS = 1000


async def copy_one(
    producer: fencepost.TransactionalProducer, consumer: Any, records: Iterable[Any], target: str
) -> None:
    """One transaction, whatever becomes of it: what did not commit is read again."""
    try:
        async with producer.transaction() as txn:
            for record in records:
                await txn.send(target, b"<" + record.value + b">", key=record.key)
            await txn.send_offsets(consumer)
    except AbortableError as error:
        print(f"again: {error}", flush=True)
    except OutcomeUnknownError as error:
        print(f"unknown: {error}; {await producer.reinitialise()}", flush=True)


async def main(address: str, source: str, target: str, group: str, name: str, whole: bool) -> None:
    """Until killed, or until somebody newer has the transactional id."""
    while True:
        try:
            await copy(address, source, target, group, name, whole)
        except RetriableError as error:
            print(f"the broker is away: {error}", flush=True)


async def copy(address: str, source: str, target: str, group: str, name: str, whole: bool) -> None:
    """One client's life."""
    patience = {"default_api_timeout": 5, "request_timeout": 2}
    async with (
        fencepost.Client(address, client_id=name, **patience) as kafka,
        kafka.transactional_producer(name, transaction_timeout=10, delivery_timeout=5) as producer,
        kafka.consumer(
            source,
            group=group,
            session_timeout=SESSION_MS / 1000,
            heartbeat_interval=0.2,
            isolation="read_uncommitted" if whole else "read_committed",
        ) as consumer,
    ):
        print("ready", flush=True)
        if whole:
            async for unit in consumer.transactions():
                await copy_one(producer, consumer, unit, target)
        else:
            async for batch in consumer.batches(max_records=20):
                await copy_one(producer, consumer, batch, target)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:6], len(sys.argv) > 6)
