"""A member with aiokafka, whose group works behind the program's back: a transaction holds off the rebalance."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.interop.members.given import BATCH, POLL_SECONDS, Given, Voice


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Gives partitions up between two transactions only: aiokafka's commits name no generation (KIP-447)."""

    def __init__(self, voice: Voice, busy: asyncio.Lock) -> None:
        self._voice = voice
        self._busy = busy

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Wait for the transaction that is under way."""
        async with self._busy:
            pass

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Tell of it."""
        self._voice.holds(one.partition for one in assigned)


async def transform(given: Given, voice: Voice, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> bool:
    """One transaction with what is there; False if that is nothing.

    `getmany` must not wait for records here. Where they come during a rebalance it waits for the next assignment, with
    no limit: that assignment comes after `on_partitions_revoked`, which waits for us.
    """
    found = await consumer.getmany(max_records=BATCH)
    count = sum(map(len, found.values()))
    if not count:
        return False
    async with producer.transaction():
        sent = [
            await producer.send(given.target, record.value, partition=place.partition)
            for place, records in found.items()
            for record in records
        ]
        await asyncio.gather(*sent)
        ends = {place: records[-1].offset + 1 for place, records in found.items()}
        await producer.send_offsets_to_transaction(ends, given.group)
        voice.say("open", count)
        await asyncio.sleep(given.pause_s)
    voice.say("committed", count)
    return True


async def main() -> None:
    """Be a member until asked to leave."""
    given, voice, busy = Given.read(), Voice(), asyncio.Lock()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=given.session_ms,
        heartbeat_interval_ms=given.heartbeat_ms,
        partition_assignment_strategy=[
            RangePartitionAssignor if given.variant == "range" else RoundRobinPartitionAssignor
        ],
    )
    consumer.subscribe([given.source], listener=Listener(voice, busy))
    async with (
        AIOKafkaProducer(bootstrap_servers=given.bootstrap, transactional_id=given.transactional_id) as producer,
        consumer,
    ):
        while not voice.asked_to_stop:
            async with busy:
                is_fed = await transform(given, voice, consumer, producer)
            await asyncio.sleep(0 if is_fed else POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
