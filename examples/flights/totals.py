"""Consume, transform, produce: totals per carrier into a second topic, with the offsets in the same transaction."""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Sequence

import trio

import fencepost
from examples.flights.dataset import FLIGHTS_TOPIC, TOTALS_GROUP, TOTALS_TOPIC, CarrierTotal
from examples.flights.events import tell
from fencepost import Consumer, ConsumerBatch, ConsumerRecord, TransactionalProducer

Totals = dict[str, CarrierTotal]
NOTHING = CarrierTotal(0, 0, 0)
IDLE_SECONDS = 0.2
BATCH_ROWS = 5000


def with_flights(totals: Totals, values: list[bytes]) -> Totals:
    """The totals of the carriers that `values` concern, after them."""
    changed: Totals = {}
    for value in values:
        flight = json.loads(value)
        carrier, delay = flight["carrier"], flight["dep_delay"]
        before = changed.get(carrier) or totals.get(carrier, NOTHING)
        changed[carrier] = CarrierTotal(
            before.flights + 1,
            before.departed + (delay is not None),
            before.delay_minutes + (delay or 0),
        )
    return changed


async def read_totals(kafka: fencepost.Client) -> Totals:
    """What the totals topic says: the last committed record of each carrier."""
    totals: Totals = {}
    async with kafka.consumer(TOTALS_TOPIC) as consumer:
        batches = consumer.batches(max_records=10_000)
        while not await caught_up(consumer):
            for record in await next_batch(batches):
                totals[record.key.decode()] = CarrierTotal(*json.loads(record.value))
    return totals


async def next_batch(batches: AsyncIterator[ConsumerBatch]) -> Sequence[ConsumerRecord]:
    """The next batch, or nothing when none comes for a while."""
    with trio.move_on_after(IDLE_SECONDS):
        return await anext(batches)
    return ()


async def caught_up(consumer: Consumer) -> bool:
    """Whether the consumer stands at the last stable offset of every partition that it has."""
    for partition, end in (await consumer.end_offsets()).items():
        if await consumer.position(partition) < end:
            return False
    return True


class Totaller:
    """Keeps the totals; what it holds in memory is exactly what its last committed transaction wrote."""

    def __init__(self, kafka: fencepost.Client) -> None:
        self._kafka = kafka
        self._no_more_input = False

    async def run(self) -> None:
        """Work until the stage says that no more input comes, and the input is used up."""
        async with (
            trio.open_nursery() as nursery,
            self._kafka.consumer(FLIGHTS_TOPIC, group=TOTALS_GROUP, isolation="read_committed") as consumer,
            self._kafka.transactional_producer("flights-totals") as producer,
        ):
            nursery.start_soon(self._listen)
            totals = await read_totals(self._kafka)
            batches = consumer.batches(max_records=BATCH_ROWS, max_wait=IDLE_SECONDS / 4)
            used = 0
            while True:
                batch = await next_batch(batches)
                if batch:
                    changed = with_flights(totals, [record.value for record in batch])
                    if await self._write(producer, consumer, changed):
                        totals |= changed
                        used += len(batch)
                        tell("totals-committed", rows=used)
                    else:
                        totals = await read_totals(self._kafka)
                elif self._no_more_input and consumer.assignment and await caught_up(consumer):
                    break
            nursery.cancel_scope.cancel()

    async def _write(self, producer: TransactionalProducer, consumer: Consumer, changed: Totals) -> bool:
        """One transaction; False when it aborted, or may have: then the consumer goes back to what is committed."""
        try:
            async with producer.transaction() as txn:
                for carrier, total in changed.items():
                    await txn.send(TOTALS_TOPIC, json.dumps(total).encode(), key=carrier.encode())
                await txn.send_offsets(consumer)
        except fencepost.AbortableError as error:
            tell("totals-aborted", why=str(error))
            return False
        except fencepost.OutcomeUnknownError as error:
            tell("totals-aborted", why=str(error))
            await producer.reinitialise()
            return False
        return True

    async def _listen(self) -> None:
        await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        self._no_more_input = True


async def main() -> None:
    """Keep totals until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    async with fencepost.Client(options.bootstrap, client_id="flights-totals") as kafka:
        await Totaller(kafka).run()
        tell("totals", totals=await read_totals(kafka))


if __name__ == "__main__":
    trio.run(main)
