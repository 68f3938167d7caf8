"""A member with our own client; the variant is a list of strategies with commas, or `consumer` (KIP-848)."""

import signal

import trio

import fencepost
from fencepost import AbortableError, Client
from fencepost.client import Consumer
from tests.interop.members.given import BATCH, WAIT_SECONDS, Given, Voice


async def transform(given: Given, voice: Voice, consumer: Consumer, producer: fencepost.TransactionalProducer) -> None:
    """Batch after batch, a transaction each; one that is refused is worked on again, or by somebody else."""
    async for batch in consumer.batches(max_records=BATCH):
        try:
            async with producer.transaction() as txn:
                for record in batch:
                    await txn.send(given.target, record.value, partition=record.partition)
                await txn.send_offsets(consumer)
                await txn._state.tracker.wait()  # they are on the broker; a program leaves that to the end of the block
                voice.say("open", len(batch))
                await trio.sleep(given.pause_s)
        except AbortableError as refused:
            voice.say("aborted", refused)
        else:
            voice.say("committed", len(batch))


async def until_asked_to_stop(voice: Voice, consumer: Consumer, scope: trio.CancelScope) -> None:
    """SIGTERM ends the reading, and so the block of the consumer, which leaves the group."""
    while not voice.asked_to_stop:
        voice.holds(partition for _, partition in consumer.assignment)
        await trio.sleep(0.01)
    scope.cancel()


async def main() -> None:
    """Be a member until asked to leave."""
    given, voice = Given.read(), Voice()
    options = {
        "group": given.group,
        "heartbeat_interval": given.heartbeat_ms / 1000,
        "session_timeout": given.session_ms / 1000,
    }
    if given.variant == "consumer":
        options["group_protocol"] = "consumer"
    elif given.variant:
        options["partition_assignment_strategy"] = given.variant
    async with (
        Client(given.bootstrap) as kafka,
        kafka.transactional_producer(given.transactional_id, transaction_timeout=WAIT_SECONDS) as producer,
        kafka.consumer(given.source, **options) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(until_asked_to_stop, voice, consumer, nursery.cancel_scope)
        await transform(given, voice, consumer, producer)


if __name__ == "__main__":
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    trio.run(main)
