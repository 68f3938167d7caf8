"""A FastAPI service that takes orders and bills them: python -m examples.fastapi_service [HOST:PORT] [PORT].

`POST /orders/7` returns when the broker has the order. A task in the background writes one invoice for each order, in
one transaction with its place in the orders. SIGTERM lets begun requests end, then ends that task: what it was about is
aborted, and billed by its successor. No order is lost, and none is billed twice.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request

from fencepost import AbortableError, Client

ORDERS, INVOICES = "service-orders", "service-invoices"
log = logging.getLogger("uvicorn.error")


async def bill(kafka: Client) -> None:
    """Write an invoice for each order, until this is cancelled. Raises FencedError when a newer service has the id."""
    async with (
        kafka.consumer(ORDERS, group="billing") as consumer,
        kafka.transactional_producer("billing-1") as producer,
    ):
        async for orders in consumer.batches(max_records=100):
            try:
                async with producer.transaction() as txn:
                    for order in orders:
                        await txn.send(INVOICES, order.value, key=order.key)
                    await txn.send_offsets(consumer)
            except AbortableError as error:
                log.warning("the same orders are billed again", exc_info=error)


def end_if_failed(task: asyncio.Task[None]) -> None:
    """A service that does not bill is no service: end it as SIGTERM does, so that it is started again."""
    if not task.cancelled() and task.exception() is not None:
        log.error("billing has failed", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)


def lifespan_at(address: str) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]]:
    """What is open while the service runs, for a broker at `address`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with Client(address, client_id="service") as kafka:
            async with kafka.admin() as admin:
                await admin.create_topics((ORDERS, INVOICES), partitions=2, if_not_exists=True)
            async with kafka.producer() as producer:
                billing = asyncio.create_task(bill(kafka))
                billing.add_done_callback(end_if_failed)
                yield {"producer": producer}  # as request.state
                billing.cancel()
                await asyncio.wait([billing])  # its transaction is aborted by then, and its member has left the group

    return lifespan


async def take_order(number: int, request: Request) -> dict[str, int]:
    """Write an order; the answer says where it is."""
    async with asyncio.timeout(10):
        place = await request.state.producer.send(ORDERS, b"%d" % number, key=b"%d" % number)
    return {"partition": place.partition, "offset": place.offset}


def service(address: str) -> FastAPI:
    """The whole of it."""
    app = FastAPI(lifespan=lifespan_at(address))
    app.post("/orders/{number}")(take_order)
    return app


if __name__ == "__main__":
    broker, port = (sys.argv[1:] + ["127.0.0.1:9092", "8000"][len(sys.argv) - 1 :])[:2]
    uvicorn.run(service(broker), host="127.0.0.1", port=int(port))
