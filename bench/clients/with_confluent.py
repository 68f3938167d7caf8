"""confluent-kafka: librdkafka, in C, with threads of its own."""

from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.clients.job import PER_POLL, Job, Laps, Outcome, Watch, by_mode

TIMEOUT_SECONDS = 60.0


class Confluent:
    """Batches are librdkafka's own default (1 MB)."""

    name = "confluent-kafka"

    def version(self) -> str:
        """Both versions."""
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def run(self, job: Job) -> Outcome:
        """Do `job`."""
        outcome = by_mode(self, job)
        assert isinstance(outcome, Outcome)
        return outcome

    def produce(self, job: Job) -> Outcome:
        """Hand in all records, wait for all acknowledgements."""
        producer = self._producer(job)
        lost: list[KafkaError] = []
        self._pump(producer, job, 1, lost)
        watch = Watch()
        self._pump(producer, job, job.count, lost)
        return watch.stop(job.count)

    def _pump(self, producer: Producer, job: Job, count: int, lost: list[KafkaError]) -> None:
        topic, value = job.topic, job.value

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                lost.append(error)

        for number in range(count):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=report)
                    break
                except BufferError:
                    producer.poll(0.05)
            if not number & 1023:
                producer.poll(0)
        if producer.flush(TIMEOUT_SECONDS) or lost:
            raise RuntimeError(f"not every record was acknowledged: {lost[:3]}")

    def transactions(self, job: Job) -> Outcome:
        """Transactions one after the other."""
        producer = self._producer(job, **{"transactional.id": job.name, "linger.ms": 0})
        producer.init_transactions(TIMEOUT_SECONDS)
        laps, value = Laps(job.count), job.value
        while not laps.over:
            producer.begin_transaction()
            for _ in range(job.per_transaction):
                producer.produce(job.topic, value)
            producer.commit_transaction(TIMEOUT_SECONDS)
            laps.lap()
        return laps.stop(job.per_transaction)

    def fill(self, job: Job) -> Outcome:
        """Records in transactions of `per_transaction`, of which every tenth is aborted; counts what is committed."""
        producer = self._producer(job, **{"transactional.id": job.name})
        producer.init_transactions(TIMEOUT_SECONDS)
        watch, committed, number = Watch(), 0, 0
        while committed < job.count:
            aborted = number % 10 == 0
            producer.begin_transaction()
            for _ in range(job.per_transaction):
                producer.produce(job.topic, b"aborted" if aborted else job.value)
            if aborted:
                producer.flush(TIMEOUT_SECONDS)
                producer.abort_transaction(TIMEOUT_SECONDS)
            else:
                producer.commit_transaction(TIMEOUT_SECONDS)
                committed += job.per_transaction
            number += 1
        return watch.stop(committed)

    def batches(self, job: Job) -> Outcome:
        """`consume`, which gives up to 500 at a time."""
        consumer = self._consumer(job)
        watch, seen, size = Watch(), 0, 0
        consumer.assign([TopicPartition(job.topic, 0, 0)])
        while seen < job.count:
            for message in consumer.consume(PER_POLL, 1.0):
                size += len(_value_of(message))
                seen += 1
        outcome = watch.stop(seen)
        consumer.close()
        _check(size, seen, job)
        return outcome

    def one_by_one(self, job: Job) -> Outcome:
        """`poll`, a record at a time."""
        consumer = self._consumer(job)
        watch, seen, size = Watch(), 0, 0
        consumer.assign([TopicPartition(job.topic, 0, 0)])
        while seen < job.count:
            message = consumer.poll(1.0)
            if message is not None:
                size += len(_value_of(message))
                seen += 1
        outcome = watch.stop(seen)
        consumer.close()
        _check(size, seen, job)
        return outcome

    def etl(self, job: Job) -> Outcome:
        """Read, write as much, commit offsets and records together."""
        producer = self._producer(job, **{"transactional.id": job.name, "linger.ms": 0})
        consumer = self._consumer(job)
        producer.init_transactions(TIMEOUT_SECONDS)
        consumer.subscribe([job.topic])
        laps = Laps(job.count)
        while not laps.over:
            messages = consumer.consume(job.per_transaction, 1.0)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(f"{job.topic}-out", _value_of(message))
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
            producer.commit_transaction(TIMEOUT_SECONDS)
            laps.lap()
        outcome = laps.stop(job.per_transaction)
        consumer.close()
        return outcome

    def _producer(self, job: Job, **options: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "enable.idempotence": True,
                "linger.ms": job.linger_ms,
                "compression.type": job.compression,
                "queue.buffering.max.messages": 1_000_000,
            }
            | options
        )

    def _consumer(self, job: Job) -> Consumer:
        """With its default of 1 s for `fetch.queue.backoff.ms` librdkafka would mostly be asleep."""
        consumer = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": job.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": job.isolation,
                "fetch.queue.backoff.ms": 1,
            }
        )
        consumer.list_topics(job.topic, TIMEOUT_SECONDS)
        return consumer


def _value_of(message: Message) -> bytes:
    if message.error() is not None:
        raise RuntimeError(str(message.error()))
    value = message.value()
    assert isinstance(value, bytes)
    return value


def _check(size: int, seen: int, job: Job) -> None:
    if size != seen * job.size_bytes:
        raise RuntimeError(f"{seen} records have {size} bytes: aborted ones are among them")
