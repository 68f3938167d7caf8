"""Loads a slice of the flights with fencepost's own client, and goes on from the right place after a kill."""

import trio

import fencepost
from examples.flights import loading
from examples.flights.dataset import FLIGHTS_TOPIC, LOADER_GROUP, SOURCE_TOPIC
from examples.flights.loading import LoadOptions, Step
from fencepost import GroupMetadata, TopicPartition, TransactionalProducer
from fencepost.client import CommittedOffset

Rows = list[tuple[bytes, bytes]]


class WrittenInVain(Exception):
    """Ends a transaction that is meant to abort."""


class Loader:
    """One producer process and its place in the input."""

    def __init__(self, options: LoadOptions, kafka: fencepost.Client, producer: TransactionalProducer) -> None:
        self._options = options
        self._kafka = kafka
        self._producer = producer
        self._source = TopicPartition(SOURCE_TOPIC, options.slice_number)

    async def load(self, rows: Rows) -> None:
        """Write everything from the committed position on.

        The position is committed with the records, so it cannot be wrong: after any doubt, ask for it again.
        """
        position = await self._committed_position()
        loading.tell_start(len(rows), position)
        while position < len(rows):
            try:
                for step in loading.plan(self._options, len(rows), position):
                    if step.written_in_vain_first:
                        await self._write_in_vain(rows, step)
                    await self._write(rows, step)
                    loading.tell_committed(step.end)
            except fencepost.AbortableError as error:
                loading.tell_aborted(self._options.transaction_rows, str(error))
            except fencepost.OutcomeUnknownError as error:
                loading.note(f"settling an unknown outcome: {error}")
                await self._producer.reinitialise()
            position = await self._committed_position()

    async def _write(self, rows: Rows, step: Step) -> None:
        middle = (step.start + step.end) // 2
        async with self._producer.transaction() as txn:
            for number in range(step.start, step.end):
                if step.stand_still and number == middle:
                    await self._producer.flush()
                    loading.wait_to_be_killed(number)
                key, value = rows[number]
                await txn.send(FLIGHTS_TOPIC, value, key=key)
            place = CommittedOffset(step.end)
            await txn.send_group_offsets(GroupMetadata(LOADER_GROUP), {self._source: place})

    async def _write_in_vain(self, rows: Rows, step: Step) -> None:
        """Write the step's rows, make sure that the broker has them, and abort."""
        try:
            async with self._producer.transaction() as txn:
                for key, value in rows[step.start : step.end]:
                    await txn.send(FLIGHTS_TOPIC, value, key=key)
                await self._producer.flush()
                raise WrittenInVain
        except WrittenInVain:
            loading.tell_aborted(step.end - step.start, "on purpose")

    async def _committed_position(self) -> int:
        async with self._kafka.consumer(group=LOADER_GROUP) as positions:
            found = await positions.committed(self._source)
        return found[self._source] or 0


async def main() -> None:
    """Load one slice."""
    options = loading.parse_options()
    rows = loading.read_slice(options)
    async with (
        fencepost.Client(options.bootstrap, client_id=options.transactional_id) as kafka,
        kafka.transactional_producer(options.transactional_id, compression="lz4", linger=0.02) as producer,
    ):
        await Loader(options, kafka, producer).load(rows)


if __name__ == "__main__":
    trio.run(main)
