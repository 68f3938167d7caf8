"""The blocking client against a real Apache Kafka: the loop that everybody writes, and that Ctrl-C may end."""

from fencepost import AbortableError
from fencepost.sync import Client
from tests.interop.java.real_kafka import RealKafka

COUNT = 1200


def test_consume_transform_produce_each_record_once(real_kafka: RealKafka) -> None:
    with Client(real_kafka.address, timeout=100) as kafka:
        with kafka.admin() as admin, kafka.producer(compression="lz4") as producer:
            admin.create_topics(["sync-in", "sync-out"])
            producer.send_many("sync-in", ((b"%d" % n, b"%d" % n) for n in range(COUNT)))
        done, aborted = 0, False
        with kafka.consumer("sync-in", group="sync") as consumer, kafka.transactional_producer("sync-1") as producer:
            for record in consumer:
                try:
                    with producer.transaction() as txn:
                        txn.send("sync-out", record.value, key=record.key)
                        if done == 30 and not aborted:
                            aborted = True
                            raise AbortableError("once")
                        txn.send_offsets(consumer)
                except AbortableError:
                    continue
                done += 1
                if done == 100:
                    break
            for batch in consumer.batches(max_records=300):
                with producer.transaction() as txn:
                    txn.send_many("sync-out", ((one.key, one.value) for one in batch))
                    txn.send_offsets(consumer)
                done += len(batch)
                if done == COUNT:
                    break
        seen: list[bytes] = []
        with kafka.consumer("sync-out") as consumer:
            for record in consumer:
                seen.append(record.value)
                if len(seen) == COUNT:
                    break
        assert sorted(seen) == sorted(b"%d" % n for n in range(COUNT))
