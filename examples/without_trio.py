"""The same client in an ordinary program, with nothing to await: python -m examples.without_trio [HOST:PORT]."""

import sys

from fencepost import AbortableError
from fencepost.sync import Client, TimedOutError, fail_after

SOURCE, TARGET, COUNT = "plain-in", "plain-out", 2000


def main(address: str) -> None:
    """Consume, transform, produce, each record once; then look at it."""
    with Client(address, client_id="plain", timeout=30) as kafka:  # no call takes longer than that
        with kafka.admin() as admin:
            admin.create_topics((SOURCE, TARGET), partitions=1, if_not_exists=True)
        with kafka.producer() as producer:
            producer.send_many(SOURCE, ((None, b"%d" % n) for n in range(COUNT)))

        with kafka.consumer(SOURCE, group="plain") as consumer, kafka.transactional_producer("plain-1") as producer:
            done = 0
            for batch in consumer.batches(max_records=500):
                try:
                    with producer.transaction() as txn:  # Ctrl-C in here aborts
                        txn.send_many(TARGET, ((record.key, (record.value or b"") + b"!") for record in batch))
                        txn.send_offsets(consumer)
                except AbortableError:
                    continue  # the same records come again
                done += len(batch)
                if done >= COUNT:
                    break

        with kafka.consumer(TARGET) as consumer:
            seen = []
            for record in consumer:  # single records; they cross from the client's thread in batches
                seen.append(record.value)
                if len(seen) == COUNT:
                    break
            assert seen == [b"%d!" % n for n in range(COUNT)]
            try:
                with fail_after(0.5):
                    next(iter(consumer))
            except TimedOutError:
                print(f"{len(seen)} records there and back, and no more")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
