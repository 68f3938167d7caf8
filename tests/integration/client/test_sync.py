"""The blocking facade: the same client, for programs without trio."""

import pytest
import trio

from fencepost import AbortableError, ConfigError, KafkaError
from fencepost.sync import Client, fail_after


def test_consume_transform_produce(address: str, name: str) -> None:
    source, target = f"{name}-in", f"{name}-out"
    with Client(address) as kafka:
        with kafka.admin() as admin:
            assert admin.create_topic(source, partitions=2)
            assert admin.create_topic(target, partitions=1)
        with kafka.producer() as producer, producer.batch() as batch:
            batch.send_many(source, ((b"%d" % n, b"%d" % n) for n in range(1200)))
        turns = done = 0
        with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as producer:
            for records in consumer.batches(max_records=200):
                turns += 1
                try:
                    with producer.transaction() as txn:
                        txn.send_many(target, ((r.key, r.value) for r in records))
                        if turns == 2:
                            raise AbortableError("again")
                        txn.send_offsets(consumer)
                    done += len(records)
                except AbortableError:
                    continue
                if done == 1200:
                    break
            assert sum(offset or 0 for offset in consumer.committed().values()) == 1200
        got: list[bytes] = []
        with kafka.consumer(target) as consumer:
            for records in consumer.batches():
                got += [record.value for record in records]
                if len(got) >= 1200:
                    break
    assert sorted(got) == sorted(b"%d" % n for n in range(1200))


def test_errors_and_deadlines_reach_the_calling_thread(address: str, name: str) -> None:
    with Client(address) as kafka, kafka.admin() as admin, kafka.producer() as producer:
        admin.create_topic(name, partitions=1)
        assert producer.send(name, b"x", key=b"k").offset == 0
        with pytest.raises(KafkaError, match="there is no 7"):
            producer.send(name, b"x", partition=7)
        with kafka.consumer(name) as consumer:
            batches = consumer.batches()
            assert len(next(batches)) == 1
            with pytest.raises(trio.TooSlowError), fail_after(0.1):
                next(batches)
        with pytest.raises(ConfigError, match="nearest is 'group'"):
            kafka.consumer(name, gruop="g")


def test_a_closed_client_says_so(address: str) -> None:
    with Client(address) as kafka:
        admin = kafka.admin()
    with pytest.raises(KafkaError, match="closed"):
        admin.list_topics()
