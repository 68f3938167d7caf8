"""Consume, transform, produce: totals per carrier into a second topic, with the offsets in the same transaction."""

import argparse
import json
import sys

import trio

import fencepost
from examples.flights.dataset import FLIGHTS_TOPIC, TOTALS_GROUP, TOTALS_TOPIC, CarrierTotal
from examples.flights.events import tell
from fencepost.client.consumer import Consumer

Totals = dict[str, CarrierTotal]
NOTHING = CarrierTotal(0, 0, 0)
IDLE_SECONDS = 0.2


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
        while await lag(consumer):
            with trio.move_on_after(1):
                async for batch in consumer.batches(max_records=10_000, max_wait=0.1):
                    for record in batch:
                        totals[record.key.decode()] = CarrierTotal(*json.loads(record.value))
                    if not await lag(consumer):
                        break
    return totals


async def lag(consumer: Consumer) -> int:
    """Committed records that are still ahead of the consumer."""
    return sum((await consumer.lag()).values())


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
            used = 0
            while not (self._no_more_input and consumer.assignment() and await lag(consumer) == 0):
                with trio.move_on_after(IDLE_SECONDS):
                    await trio.sleep(IDLE_SECONDS)
                async for batch in consumer.batches(max_records=5000, max_wait=IDLE_SECONDS):
                    changed = with_flights(totals, [record.value for record in batch])
                    try:
                        async with producer.transaction() as txn:
                            for carrier, total in changed.items():
                                await txn.send(TOTALS_TOPIC, json.dumps(total).encode(), key=carrier.encode())
                            await txn.send_offsets(consumer)
                    except fencepost.AbortableError as error:
                        tell("totals-aborted", why=str(error))
                        continue
                    totals |= changed
                    used += len(batch)
                    tell("totals-committed", rows=used)
                    if self._no_more_input:
                        break
            nursery.cancel_scope.cancel()

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
