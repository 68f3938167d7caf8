"""Write records and read them again: python -m examples.produce_consume [HOST:PORT]."""

import sys

import trio

import fencepost

TOPIC = "greetings"


async def main(address: str) -> None:
    """A thousand records there and back."""
    async with fencepost.Client(address, client_id="example") as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC, partitions=2, if_not_exists=True)

        async with kafka.producer(compression="gzip") as producer:
            place = await producer.send(TOPIC, b"hello", key=b"k", headers=[("from", b"example")])  # acknowledged
            print(f"the first one is at {place.topic}-{place.partition}, offset {place.offset}")
            async with producer.batch() as batch:  # many: waits for the acknowledgements at the end, once
                for n in range(999):
                    await batch.send(TOPIC, b"hello %d" % n)

        async with kafka.consumer(TOPIC) as consumer:  # without a group: all partitions, from the beginning
            seen = 0
            with trio.fail_after(30):  # deadlines are trio's
                async for records in consumer.batches():
                    seen += len(records)
                    if seen >= 1000:
                        break
        print(f"read {seen} records")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
