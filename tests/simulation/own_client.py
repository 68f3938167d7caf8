"""fencepost's own client as a program of a simulated world: over the same network, through what a user would write."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

import fencepost
from fencepost.client.transactions.producer import TransactionalProducer
from tests.kit.history import Fate, Place, Transaction, Writer
from tests.kit.sim_network import HERE
from tests.simulation.sim_writers import BATCH_RECORDS, GROUP, Program
from tests.simulation.txn_client import PATIENCE_SECONDS, STAMP_MS, GaveUp

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

REQUEST_SECONDS = 1.0
SECOND_PROTOCOL = 2
REST_SECONDS = 1.0
"""Without a record for so long, a copier looks whether there can be any more."""


class OnPurpose(Exception):
    """The program takes its transaction back."""


class Superseded(Exception):
    """Somebody newer runs, and this one leaves the work to him."""


class OwnProgram(Program):
    """A program around one client and one transactional producer for each incarnation."""

    def __init__(self, world: "WholeWorld", transactional_id: str, random: Random) -> None:
        super().__init__(world, transactional_id, SECOND_PROTOCOL, random)

    async def run(self) -> None:
        try:
            await super().run()
        except Superseded as end:
            self.world.tell(f"{self.transactional_id}: leaves the work to its successor: {end}")

    def superseded(self, why: str) -> Superseded:
        """What to raise to leave the work to another. Counted at once: else two might leave it to each other."""
        self.alive -= 1
        return Superseded(why)

    async def _incarnate(self) -> None:
        self._incarnations += 1
        name = f"{self.transactional_id}.{self._incarnations}"
        client = fencepost.Client(
            [f"{HERE.host}:{HERE.port}"],
            client_id=name,
            dial=self.world.network.dial,
            random=Random(self.random.getrandbits(64)),
            wall_clock=lambda: self.world.broker.clock.now_ms() / 1000,
            request_timeout=REQUEST_SECONDS,
            socket_connection_setup_timeout=REQUEST_SECONDS,
            default_api_timeout=PATIENCE_SECONDS,
        )
        async with client as kafka:
            try:
                async with kafka.transactional_producer(
                    self.transactional_id,
                    transaction_timeout=self.timeout_ms / 1000,
                    delivery_timeout=PATIENCE_SECONDS,
                ) as producer:
                    assert producer._manager.current is not None
                    self.world.note_fence(self.transactional_id, producer._manager.current, self.version)
                    await self.use(kafka, producer, name)
            except fencepost.KafkaError as error:
                if isinstance(error, fencepost.FencedError) and self.alive > 1:
                    raise self.superseded(repr(error)) from error
                raise GaveUp(repr(error)) from error

    async def use(self, kafka: fencepost.Client, producer: TransactionalProducer, name: str) -> None:
        """What an incarnation does with its producer. Raises what ends it."""
        raise NotImplementedError

    async def transact(
        self, producer: TransactionalProducer, what: str, fill: Callable[[fencepost.Transaction], Awaitable[None]]
    ) -> Fate:
        """One transaction, and what the client says of it. Raises what ends the incarnation."""
        told = "aborted"
        try:
            async with producer.transaction() as txn:
                await fill(txn)
                if self.random.random() < 0.2 and not self.world.writers_done:
                    raise OnPurpose
                self.maybe_crash()
            told = "ok"
            return Fate.COMMITTED
        except fencepost.OutcomeUnknownError as error:
            told = repr(error)
            await producer.reinitialise()
            return Fate.UNKNOWN
        except (OnPurpose, fencepost.AbortableError) as error:
            told = repr(error)
            return Fate.ABORTED
        except BaseException as error:
            told = repr(error)
            raise
        finally:
            self.world.tell(f"{what} as {producer._manager.current}: {told}")


class OwnWriter(OwnProgram):
    """Writes transactions of some records to some partitions, several requests in flight, and commits most."""

    def __init__(
        self, world: "WholeWorld", transactional_id: str, random: Random, places: Sequence[Place], transactions: int
    ) -> None:
        super().__init__(world, transactional_id, random)
        self._places = places
        self._left = transactions

    def finished(self) -> bool:
        return self._left <= 0 or self.world.weather.calm

    async def use(self, kafka: fencepost.Client, producer: TransactionalProducer, name: str) -> None:
        writer = Writer(name)
        self.world.history.writers.append(writer)
        while not self.finished():
            self._left -= 1
            number = len(writer.transactions) + 1
            transaction = writer.transactions[number] = Transaction(Fate.UNKNOWN)
            transaction.fate = await self.transact(
                producer, f"{name}: transaction {number}", partial(self._fill, writer, transaction, number)
            )
            await self.rest()

    async def _fill(self, writer: Writer, transaction: Transaction, number: int, txn: fencepost.Transaction) -> None:
        for _ in range(self.random.randint(1, 6)):
            topic, partition = self.random.choice(self._places)
            value = f"{writer.name}:{number}:{len(transaction.sent)}"
            transaction.sent.append(((topic, partition), value))
            writer.order[topic, partition].append(value)
            await txn.send(topic, value.encode(), partition=partition, timestamp_ms=STAMP_MS)
            await self.maybe_freeze()


class OwnCopier(OwnProgram):
    """Consumes one topic as a member of a group and copies it to another: records and positions in one transaction."""

    def __init__(self, world: "WholeWorld", transactional_id: str, random: Random, source: str, target: str) -> None:
        super().__init__(world, transactional_id, random)
        self._source = source
        self._target = target
        self._drained = False

    def finished(self) -> bool:
        return self._drained

    async def use(self, kafka: fencepost.Client, producer: TransactionalProducer, name: str) -> None:
        consumer = kafka.consumer(
            self._source, group=GROUP, session_timeout=6, heartbeat_interval=1, max_poll_interval=6
        )
        async with consumer:
            batches = consumer.batches(max_records=BATCH_RECORDS)
            while not self._drained:
                last_round = self.world.writers_done
                batch = None
                with trio.move_on_after(REST_SECONDS):
                    batch = await anext(batches)
                if batch is not None:
                    await self.transact(producer, f"{name}: a copy", partial(self._copy, consumer, batch))
                elif last_round and await self._has_all(consumer):
                    if self.alive > 1:
                        raise self.superseded("all is copied")
                    self._drained = len(consumer.assignment) == self.world.plan.partitions

    async def _copy(
        self, consumer: "fencepost.Consumer", batch: fencepost.ConsumerBatch, txn: fencepost.Transaction
    ) -> None:
        for record in batch:
            await txn.send(self._target, record.value, partition=record.partition, timestamp_ms=STAMP_MS)
        await self.maybe_freeze()
        await txn.send_offsets(consumer)
        await self.maybe_freeze()

    async def _has_all(self, consumer: "fencepost.Consumer") -> bool:
        """Whether this member has read its partitions to their ends."""
        node = self.world.broker.node
        if node is None:
            return False
        assigned = sorted(consumer.assignment)
        logs = [node.partition(partition) for partition in assigned]
        ends = [-1 if log is None else log.log_end_offset for log in logs]
        return ends == [await consumer.position(partition) for partition in assigned]
