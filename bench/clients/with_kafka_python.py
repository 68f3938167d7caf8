"""kafka-python: threads and sockets, all in Python."""

from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from bench.clients.job import PER_POLL, Job, Laps, Outcome, Watch, by_mode

TIMEOUT_SECONDS = 300


class KafkaPython:
    """Batches are its own default (16 KiB)."""

    name = "kafka-python"

    def version(self) -> str:
        """The version."""
        return str(kafka.__version__)

    def run(self, job: Job) -> Outcome:
        """Do `job`."""
        outcome = by_mode(self, job)
        assert isinstance(outcome, Outcome)
        return outcome

    def produce(self, job: Job) -> Outcome:
        """`send` for each record, then `flush`."""
        producer = self._producer(job)
        topic, value = job.topic, job.value
        producer.send(topic, value).get(TIMEOUT_SECONDS)
        failed: list[BaseException] = []
        watch = Watch()
        for _ in range(job.count):
            producer.send(topic, value).add_errback(failed.append)
        producer.flush(TIMEOUT_SECONDS)
        outcome = watch.stop(job.count)
        producer.close()
        if failed:
            raise RuntimeError(f"not every record was acknowledged: {failed[:3]}")
        return outcome

    def transactions(self, job: Job) -> Outcome:
        """Transactions one after the other."""
        producer = self._producer(job, transactional_id=job.name, linger_ms=0)
        producer.init_transactions()
        laps, value = Laps(job.count), job.value
        while not laps.over:
            producer.begin_transaction()
            for _ in range(job.per_transaction):
                producer.send(job.topic, value)
            producer.commit_transaction()
            laps.lap()
        outcome = laps.stop(job.per_transaction)
        producer.close()
        return outcome

    def batches(self, job: Job) -> Outcome:
        """`poll`, up to 500 at a time."""
        consumer = self._consumer(job)
        watch, seen, size = Watch(), 0, 0
        self._begin(consumer, job)
        while seen < job.count:
            for messages in consumer.poll(timeout_ms=1000, max_records=PER_POLL).values():
                for message in messages:
                    size += len(message.value)
                seen += len(messages)
        return self._closed(consumer, watch.stop(seen), size, job)

    def one_by_one(self, job: Job) -> Outcome:
        """`for message in consumer`."""
        consumer = self._consumer(job)
        watch, seen, size = Watch(), 0, 0
        self._begin(consumer, job)
        for message in consumer:
            size += len(message.value)
            seen += 1
            if seen >= job.count:
                break
        return self._closed(consumer, watch.stop(seen), size, job)

    def etl(self, job: Job) -> Outcome:
        """Read, write as much, commit offsets and records together."""
        producer = self._producer(job, transactional_id=job.name, linger_ms=0)
        producer.init_transactions()
        consumer = self._consumer(job, job.topic, group_id=job.name)
        laps = Laps(job.count)
        while not laps.over:
            batch = consumer.poll(timeout_ms=1000, max_records=job.per_transaction)
            if not batch:
                continue
            producer.begin_transaction()
            offsets = {}
            for partition, messages in batch.items():
                for message in messages:
                    producer.send(f"{job.topic}-out", message.value)
                offsets[partition] = OffsetAndMetadata(messages[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            laps.lap()
        outcome = laps.stop(job.per_transaction)
        consumer.close()
        producer.close()
        return outcome

    def _producer(self, job: Job, **options: Any) -> KafkaProducer:
        settings = {"linger_ms": job.linger_ms} | options
        codec = None if job.compression == "none" else job.compression
        return KafkaProducer(
            bootstrap_servers=job.bootstrap, enable_idempotence=True, acks="all", compression_type=codec, **settings
        )

    def _consumer(self, job: Job, *topics: str, **options: Any) -> KafkaConsumer:
        return KafkaConsumer(
            *topics,
            bootstrap_servers=job.bootstrap,
            isolation_level=job.isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **options,
        )

    def _begin(self, consumer: KafkaConsumer, job: Job) -> None:
        partition = TopicPartition(job.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)

    def _closed(self, consumer: KafkaConsumer, outcome: Outcome, size: int, job: Job) -> Outcome:
        consumer.close()
        if size != outcome.records * job.size_bytes:
            raise RuntimeError(f"{outcome.records} records have {size} bytes: aborted ones are among them")
        return outcome
