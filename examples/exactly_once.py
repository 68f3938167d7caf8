"""Read orders, write invoices, each exactly once: python -m examples.exactly_once [HOST:PORT].

Kill it wherever you like and start it again: no order is billed twice, and none is forgotten.
"""

import sys

import trio

import fencepost

ORDERS, INVOICES, COUNT = "orders", "invoices", 500


async def place_orders(kafka: fencepost.Client) -> None:
    """Somebody orders something, unless that was done before."""
    async with kafka.admin() as admin:
        await admin.create_topics(INVOICES, partitions=1, if_not_exists=True)
        if await admin.create_topics(ORDERS, partitions=3, if_not_exists=True):
            async with kafka.producer() as producer:
                await producer.send_many(ORDERS, ((b"customer-%d" % (n % 7), b"%d" % n) for n in range(COUNT)))


async def bill(kafka: fencepost.Client) -> None:
    """The loop: records, what becomes of them, and how far we are, all in one transaction."""
    async with (
        kafka.consumer(
            ORDERS, group="billing", group_instance_id="billing-1"
        ) as consumer,  # a restart reads on at once
        kafka.transactional_producer("billing-1", transaction_timeout=30) as producer,  # fences my older self
    ):
        async for batch in consumer.batches(max_records=100):
            try:
                async with producer.transaction() as txn:  # commits at the end, aborts on error and on cancel
                    for record in batch:
                        if record.value is None:  # Kafka's null: there is no order in it
                            continue
                        await txn.send(INVOICES, b"%d EUR" % (int(record.value) * 2), key=record.key)
                    await txn.send_offsets(consumer)
            except fencepost.AbortableError as error:
                print(f"again: {error}")  # the consumer has gone back by itself: the same records come again
            except fencepost.FencedError:
                print("somebody newer runs under this name: leave it to them")
                return


async def check(kafka: fencepost.Client) -> None:
    """Wait for all invoices, as a customer sees them: committed ones only."""
    invoices: list[bytes] = []
    async with kafka.consumer(INVOICES) as consumer:
        async for record in consumer:
            if record.value is not None:
                invoices.append(record.value)
            if len(invoices) == COUNT:
                break
    assert sorted(invoices) == sorted(b"%d EUR" % (n * 2) for n in range(COUNT))
    print(f"{COUNT} orders, {len(invoices)} invoices, each once")


async def main(address: str) -> None:
    """Order, bill and check at once."""
    async with fencepost.Client(address, client_id="billing") as kafka:
        await place_orders(kafka)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bill, kafka)
            with trio.fail_after(60):
                await check(kafka)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
