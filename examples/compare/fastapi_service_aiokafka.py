"""Take orders and bill them with aiokafka, as examples/fastapi_service.py does.

Run it as python -m examples.compare.fastapi_service_aiokafka [HOST:PORT] [PORT]. `POST /orders/7` returns when the
broker has the order. A task in the background writes one invoice for each order, in one transaction with its place in
the orders. SIGTERM lets begun requests end, then ends that task.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced
from fastapi import FastAPI, Request

ORDERS, INVOICES, GROUP = "aiokafka-service-orders", "aiokafka-service-invoices", "aiokafka-billing"
log = logging.getLogger("uvicorn.error")


class TransactionsFirst(ConsumerRebalanceListener):
    """Lets a rebalance wait for the transaction in hand: aiokafka rebalances in the background."""

    def __init__(self, busy: asyncio.Lock) -> None:
        self.busy = busy

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called before this member joins again."""
        async with self.busy:
            pass

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Nothing is to be done."""


async def bill(address: str) -> None:
    """Write an invoice for each order, until this is cancelled. ProducerFenced: a newer service has the id."""
    busy = asyncio.Lock()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.subscribe([ORDERS], listener=TransactionsFirst(busy))
    # The producer first: it aborts what a killed predecessor left open.
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id="aiokafka-billing-1") as producer, consumer:
        while True:
            batch = await consumer.getmany(timeout_ms=1000, max_records=100)
            if not batch:
                continue
            async with busy:
                try:
                    async with producer.transaction():
                        sent = [
                            await producer.send(INVOICES, order.value, key=order.key)
                            for orders in batch.values()
                            for order in orders
                        ]
                        await asyncio.gather(*sent)  # a commit does not look whether records failed
                        positions = {partition: orders[-1].offset + 1 for partition, orders in batch.items()}
                        await producer.send_offsets_to_transaction(positions, GROUP)
                except ProducerFenced:
                    raise
                except KafkaError as error:
                    log.warning("the same orders are billed again", exc_info=error)
                    for partition, orders in batch.items():
                        consumer.seek(partition, orders[0].offset)


def end_if_failed(task: asyncio.Task[None]) -> None:
    """A service that does not bill is no service: end it as SIGTERM does, so that it is started again."""
    if not task.cancelled() and task.exception() is not None:
        log.error("billing has failed", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)


def lifespan_at(address: str) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]]:
    """What is open while the service runs, for a broker at `address`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        try:
            await admin.start()
            await admin.create_topics([NewTopic(ORDERS, 2, 1), NewTopic(INVOICES, 2, 1)])
        finally:
            await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            billing = asyncio.create_task(bill(address))
            billing.add_done_callback(end_if_failed)
            yield {"producer": producer}  # as request.state
            billing.cancel()
            await asyncio.wait([billing])  # its transaction is over by then, and its member has left the group

    return lifespan


async def take_order(number: int, request: Request) -> dict[str, int]:
    """Write an order; the answer says where it is."""
    async with asyncio.timeout(10):
        place = await request.state.producer.send_and_wait(ORDERS, b"%d" % number, key=b"%d" % number)
    return {"partition": place.partition, "offset": place.offset}


def service(address: str) -> FastAPI:
    """The whole of it."""
    app = FastAPI(lifespan=lifespan_at(address))
    app.post("/orders/{number}")(take_order)
    return app


if __name__ == "__main__":
    broker, port = (sys.argv[1:] + ["127.0.0.1:9092", "8000"][len(sys.argv) - 1 :])[:2]
    uvicorn.run(service(broker), host="127.0.0.1", port=int(port))
