"""aiokafka: asyncio, with its record code in Cython."""

import asyncio
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.clients.job import PER_POLL, Job, Laps, Outcome, Watch, by_mode

UNANSWERED = 20_000
"""Futures that are kept before they are waited for, which bounds the memory of the measured program."""


class Aiokafka:
    """Batches are its own default (16 KiB)."""

    name = "aiokafka"

    def version(self) -> str:
        """And whether its C part is there."""
        compiled = "_crecords" in DefaultRecordBatchBuilder.__module__
        return aiokafka.__version__ + (" (Cython)" if compiled else " (pure Python)")

    def run(self, job: Job) -> Outcome:
        """Do `job` in a loop of its own."""
        outcome = asyncio.run(by_mode(self, job))
        assert isinstance(outcome, Outcome)
        return outcome

    async def produce(self, job: Job) -> Outcome:
        """`send` for each record, and its future waited for."""
        producer = await self._producer(job)
        try:
            topic, value = job.topic, job.value
            await producer.send_and_wait(topic, value)
            futures = []
            watch = Watch()
            for _ in range(job.count):
                futures.append(await producer.send(topic, value))
                if len(futures) >= UNANSWERED:
                    await asyncio.gather(*futures)
                    futures.clear()
            await asyncio.gather(*futures)
            return watch.stop(job.count)
        finally:
            await producer.stop()

    async def transactions(self, job: Job) -> Outcome:
        """Transactions one after the other."""
        producer = await self._producer(job, transactional_id=job.name, linger_ms=0)
        laps, value = Laps(job.count), job.value
        try:
            while not laps.over:
                async with producer.transaction():
                    for _ in range(job.per_transaction):
                        await producer.send(job.topic, value)
                laps.lap()
            return laps.stop(job.per_transaction)
        finally:
            await producer.stop()

    async def batches(self, job: Job) -> Outcome:
        """`getmany`, up to 500 at a time."""
        consumer = await self._consumer(job)
        try:
            watch, seen, size = Watch(), 0, 0
            self._begin(consumer, job)
            while seen < job.count:
                for messages in (await consumer.getmany(timeout_ms=1000, max_records=PER_POLL)).values():
                    for message in messages:
                        size += len(message.value)
                    seen += len(messages)
            return self._checked(watch.stop(seen), size, job)
        finally:
            await consumer.stop()

    async def one_by_one(self, job: Job) -> Outcome:
        """`async for`."""
        consumer = await self._consumer(job)
        try:
            watch, seen, size = Watch(), 0, 0
            self._begin(consumer, job)
            async for message in consumer:
                size += len(message.value)
                seen += 1
                if seen >= job.count:
                    break
            return self._checked(watch.stop(seen), size, job)
        finally:
            await consumer.stop()

    async def etl(self, job: Job) -> Outcome:
        """Read, write as much, commit offsets and records together; it knows of no member metadata (KIP-447)."""
        producer = await self._producer(job, transactional_id=job.name, linger_ms=0)
        consumer = await self._consumer(job, job.topic, group_id=job.name)
        laps = Laps(job.count)
        try:
            while not laps.over:
                batch = await consumer.getmany(timeout_ms=1000, max_records=job.per_transaction)
                if not batch:
                    continue
                async with producer.transaction():
                    offsets = {}
                    for partition, messages in batch.items():
                        for message in messages:
                            await producer.send(f"{job.topic}-out", message.value)
                        offsets[partition] = messages[-1].offset + 1
                    await producer.send_offsets_to_transaction(offsets, job.name)
                laps.lap()
            return laps.stop(job.per_transaction)
        finally:
            await consumer.stop()
            await producer.stop()

    async def _producer(self, job: Job, **options: Any) -> AIOKafkaProducer:
        settings = {"linger_ms": job.linger_ms} | options
        codec = None if job.compression == "none" else job.compression
        producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap, enable_idempotence=True, acks="all", compression_type=codec, **settings
        )
        await producer.start()
        return producer

    async def _consumer(self, job: Job, *topics: str, **options: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=job.bootstrap,
            isolation_level=job.isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **options,
        )
        await consumer.start()
        return consumer

    def _begin(self, consumer: AIOKafkaConsumer, job: Job) -> None:
        partition = TopicPartition(job.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)

    def _checked(self, outcome: Outcome, size: int, job: Job) -> Outcome:
        if size != outcome.records * job.size_bytes:
            raise RuntimeError(f"{outcome.records} records have {size} bytes: aborted ones are among them")
        return outcome
