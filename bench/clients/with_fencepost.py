"""fencepost's own client, on trio."""

from typing import Any

import trio

import fencepost
from bench.clients.job import PER_POLL, Job, Laps, Outcome, Watch, by_mode
from fencepost import TopicPartition
from fencepost.protocol.compiled import record_code


class Fencepost:
    """Batches are its own default."""

    name = "fencepost"

    def version(self) -> str:
        """And which of the two ways through records is taken."""
        return f"{fencepost.__version__} ({record_code()})"

    def run(self, job: Job) -> Outcome:
        """Do `job` in a loop of its own."""
        outcome = trio.run(self._with_client, job)
        assert isinstance(outcome, Outcome)
        return outcome

    async def _with_client(self, job: Job) -> Any:
        async with fencepost.Client(job.bootstrap) as kafka:
            return await by_mode(self, job)(kafka)

    def produce(self, job: Job) -> Any:
        """`send` for each record, acknowledgements at the end of the block."""

        async def go(kafka: fencepost.Client) -> Outcome:
            async with kafka.producer(linger=job.linger_ms / 1000, compression=job.compression) as producer:
                topic, value = job.topic, job.value
                await producer.send(topic, value)
                watch = Watch()
                async with producer.batch() as batch:
                    for _ in range(job.count):
                        await batch.send(topic, value)
                return watch.stop(job.count)

        return go

    def produce_many(self, job: Job) -> Any:
        """`send_many`, which the other clients have not."""

        async def go(kafka: fencepost.Client) -> Outcome:
            async with kafka.producer(linger=job.linger_ms / 1000, compression=job.compression) as producer:
                topic, value = job.topic, job.value
                await producer.send(topic, value)
                watch = Watch()
                async with producer.batch() as batch:
                    await batch.send_many(topic, ((None, value) for _ in range(job.count)))
                return watch.stop(job.count)

        return go

    def transactions(self, job: Job) -> Any:
        """Transactions one after the other."""

        async def go(kafka: fencepost.Client) -> Outcome:
            async with kafka.transactional_producer(job.name) as producer:
                laps, value = Laps(job.count), job.value
                while not laps.over:
                    async with producer.transaction() as txn:
                        for _ in range(job.per_transaction):
                            await txn.send(job.topic, value)
                    laps.lap()
                return laps.stop(job.per_transaction)

        return go

    def batches(self, job: Job) -> Any:
        """`batches()`, up to 500 at a time."""

        async def go(kafka: fencepost.Client) -> Outcome:
            async with kafka.consumer(isolation=job.isolation) as consumer:
                watch, seen, size = Watch(), 0, 0
                self._begin(consumer, job)
                async for batch in consumer.batches(PER_POLL):
                    for record in batch:
                        size += len(record.value)
                    seen += len(batch)
                    if seen >= job.count:
                        break
                return self._checked(watch.stop(seen), size, job)

        return go

    def one_by_one(self, job: Job) -> Any:
        """`async for record in consumer`."""

        async def go(kafka: fencepost.Client) -> Outcome:
            async with kafka.consumer(isolation=job.isolation) as consumer:
                watch, seen, size = Watch(), 0, 0
                self._begin(consumer, job)
                async for record in consumer:
                    size += len(record.value)
                    seen += 1
                    if seen >= job.count:
                        break
                return self._checked(watch.stop(seen), size, job)

        return go

    def arrow(self, job: Job) -> Any:
        """`arrow()`: columns, without an object per record."""

        async def go(kafka: fencepost.Client) -> Outcome:
            import pyarrow.compute as pc

            async with kafka.consumer(isolation=job.isolation) as consumer:
                watch, seen, size = Watch(), 0, 0
                self._begin(consumer, job)
                async for batch in consumer.arrow():
                    size += pc.sum(pc.binary_length(batch.column("value"))).as_py()
                    seen += batch.num_rows
                    if seen >= job.count:
                        break
                return self._checked(watch.stop(seen), size, job)

        return go

    def etl(self, job: Job) -> Any:
        """Read, write as much, commit offsets and records together."""

        async def go(kafka: fencepost.Client) -> Outcome:
            async with (
                kafka.consumer(job.topic, group=job.name, isolation=job.isolation) as consumer,
                kafka.transactional_producer(job.name) as producer,
            ):
                laps = Laps(job.count)
                async for batch in consumer.batches(job.per_transaction):
                    async with producer.transaction() as txn:
                        for record in batch:
                            await txn.send(f"{job.topic}-out", record.value)
                        await txn.send_offsets(consumer)
                    laps.lap()
                    if laps.over:
                        break
                return laps.stop(job.per_transaction)

        return go

    def _begin(self, consumer: Any, job: Job) -> None:
        partition = TopicPartition(job.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)

    def _checked(self, outcome: Outcome, size: int, job: Job) -> Outcome:
        if size != outcome.records * job.size_bytes:
            raise RuntimeError(f"{outcome.records} records have {size} bytes: aborted ones are among them")
        return outcome
