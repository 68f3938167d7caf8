"""Take orders and bill them with confluent-kafka, as examples/fastapi_service.py does.

Run it as python -m examples.compare.fastapi_service_confluent [HOST:PORT] [PORT]. `POST /orders/7` returns when the
broker has the order. A task in the background writes one invoice for each order, in one transaction with its place in
the orders. SIGTERM lets begun requests end, then ends that task.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.aio import AIOConsumer, AIOProducer
from fastapi import FastAPI, Request

ORDERS, INVOICES, GROUP = "confluent-service-orders", "confluent-service-invoices", "confluent-billing"
log = logging.getLogger("uvicorn.error")


async def repeat(call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Call a function of transactions again as long as its error allows that."""
    while True:
        try:
            return await call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


async def bill(address: str, stopping: asyncio.Event) -> None:
    """Write an invoice for each order, until the service stops. Threads make the calls, so cancelling ends none."""
    async with (
        AIOProducer({"bootstrap.servers": address, "transactional.id": "confluent-billing-1"}) as producer,
        AIOConsumer(
            {
                "bootstrap.servers": address,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        ) as consumer,
    ):
        await repeat(producer.init_transactions, 30)
        await consumer.subscribe([ORDERS])
        while not stopping.is_set():
            batch = await consumer.consume(100, 0.2)
            if failed := [message.error() for message in batch if message.error() is not None]:
                raise KafkaException(failed[0])
            if not batch:
                continue
            try:
                await producer.begin_transaction()
                for order in batch:
                    await producer.produce(INVOICES, order.value(), order.key())
                positions = await consumer.position(await consumer.assignment())
                member = await consumer.consumer_group_metadata()
                await repeat(producer.send_offsets_to_transaction, positions, member, 30)
                await repeat(producer.commit_transaction, 30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                log.warning("the same orders are billed again", exc_info=error)
                await repeat(producer.abort_transaction, 30)
                for position in await consumer.committed(await consumer.assignment(), 30):
                    start = position.offset if position.offset >= 0 else OFFSET_BEGINNING
                    await consumer.seek(TopicPartition(position.topic, position.partition, start))


def end_if_failed(task: asyncio.Task[None]) -> None:
    """A service that does not bill is no service: end it as SIGTERM does, so that it is started again."""
    if not task.cancelled() and task.exception() is not None:
        log.error("billing has failed", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)


def create_topics(address: str) -> None:
    """Create both topics where they are missing."""
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(ORDERS, 2), NewTopic(INVOICES, 2)]).values():
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def lifespan_at(address: str) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]]:
    """What is open while the service runs, for a broker at `address`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        await asyncio.to_thread(create_topics, address)
        stopping = asyncio.Event()
        async with AIOProducer({"bootstrap.servers": address, "enable.idempotence": True}) as producer:
            billing = asyncio.create_task(bill(address, stopping))
            billing.add_done_callback(end_if_failed)
            yield {"producer": producer}  # as request.state
            stopping.set()
            await asyncio.wait([billing])  # its transaction is over by then, and its member has left the group

    return lifespan


async def take_order(number: int, request: Request) -> dict[str, int]:
    """Write an order; the answer says where it is."""
    async with asyncio.timeout(10):
        sent = await request.state.producer.produce(ORDERS, b"%d" % number, b"%d" % number)
        await request.state.producer.flush(10)  # without it, the order waits a second for others to go with
        place = await sent
    return {"partition": place.partition(), "offset": place.offset()}


def service(address: str) -> FastAPI:
    """The whole of it."""
    app = FastAPI(lifespan=lifespan_at(address))
    app.post("/orders/{number}")(take_order)
    return app


if __name__ == "__main__":
    broker, port = (sys.argv[1:] + ["127.0.0.1:9092", "8000"][len(sys.argv) - 1 :])[:2]
    uvicorn.run(service(broker), host="127.0.0.1", port=int(port))
