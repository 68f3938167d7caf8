"""A topic as a table, without a Python object per record: python -m examples.arrow_table [HOST:PORT].

Needs pyarrow and numpy.
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc
import trio

import fencepost

TOPIC, COUNT = "measurements", 20_000


async def main(address: str) -> None:
    """Write numbers, read columns, compute with them."""
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC, partitions=2, if_not_exists=True)
        async with kafka.producer() as producer:
            await producer.send_many(TOPIC, ((b"sensor-%d" % (n % 5), b"%d" % n) for n in range(COUNT)))

        batches: list[pa.RecordBatch] = []
        async with kafka.consumer(TOPIC) as consumer:
            with trio.fail_after(60):
                async for batch in consumer.arrow(columns=["partition", "offset", "key", "value"]):
                    batches.append(batch)
                    if sum(len(one) for one in batches) >= COUNT:
                        break

    table = pa.Table.from_batches(batches)
    readings = table.set_column(
        table.schema.get_field_index("value"), "value", pc.cast(pc.cast(table["value"], pa.string()), pa.int64())
    )
    means = readings.group_by("key").aggregate([("value", "mean"), ("value", "count")]).sort_by("key")
    for row in means.to_pylist():
        print(f"{row['key'].decode()}: mean {row['value_mean']:.1f} of {row['value_count']}")
    assert pc.sum(readings["value"]).as_py() == COUNT * (COUNT - 1) // 2


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
