"""fencepost's own client as a program of a simulated world: over the same network, through what a user would write."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import fencepost
from fencepost.client.txn import TransactionalProducer
from fencepost.testing.sim_network import HERE
from tests.kit.history import Fate, Place, Transaction, Writer
from tests.simulation.sim_writers import Crashed, Program
from tests.simulation.txn_client import PATIENCE_SECONDS, STAMP_MS, GaveUp

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

REQUEST_SECONDS = 1.0
SECOND_PROTOCOL = 2


class OnPurpose(Exception):
    """The program takes its transaction back."""


class OwnWriter(Program):
    """Writes transactions of some records to some partitions, several requests in flight, and commits most."""

    def __init__(
        self, world: "WholeWorld", transactional_id: str, random: Random, places: Sequence[Place], transactions: int
    ) -> None:
        super().__init__(world, transactional_id, SECOND_PROTOCOL, random)
        self._places = places
        self._left = transactions

    def finished(self) -> bool:
        return self._left <= 0 or self.world.closing

    async def _incarnate(self) -> None:
        self._incarnations += 1
        name = f"{self.transactional_id}.{self._incarnations}"
        client = fencepost.Client(
            [f"{HERE.host}:{HERE.port}"],
            client_id=name,
            dial=self.world.network.dial,
            random=Random(self.random.getrandbits(64)),
            wall_clock=lambda: self.world.broker.clock.now_ms() / 1000,
            request_timeout_ms=int(REQUEST_SECONDS * 1000),
            socket_connection_setup_timeout_ms=int(REQUEST_SECONDS * 1000),
            default_api_timeout_ms=int(PATIENCE_SECONDS * 1000),
        )
        async with client as kafka:
            try:
                async with kafka.transactional_producer(
                    self.transactional_id,
                    timeout=self.timeout_ms / 1000,
                    delivery_timeout_ms=int(PATIENCE_SECONDS * 1000),
                ) as producer:
                    await self._write_all(producer, name)
            except fencepost.KafkaError as error:
                raise GaveUp(repr(error)) from error

    async def _write_all(self, producer: TransactionalProducer, name: str) -> None:
        assert producer.current is not None
        self.world.note_fence(self.transactional_id, producer.current, self.version)
        writer = Writer(name)
        self.world.history.writers.append(writer)
        number = 0
        while not self.finished():
            self._left -= 1
            number += 1
            await self._transaction(producer, writer, number)

    async def _transaction(self, producer: TransactionalProducer, writer: Writer, number: int) -> None:
        """One transaction; what comes of it is what the client says."""
        transaction = writer.transactions[number] = Transaction()
        told = "aborted"
        try:
            async with producer.transaction() as txn:
                for _ in range(self.random.randint(1, 6)):
                    topic, partition = self.random.choice(self._places)
                    value = f"{writer.name}:{number}:{len(transaction.sent)}"
                    transaction.sent.append(((topic, partition), value))
                    writer.order[topic, partition].append(value)
                    await txn.send(topic, value.encode(), partition=partition, timestamp_ms=STAMP_MS)
                    await self.maybe_freeze()
                if self.random.random() < 0.2:
                    raise OnPurpose
                if self.random.random() < 0.03 and not self.world.weather.calm:
                    raise Crashed
            transaction.fate, told = Fate.COMMITTED, "ok"
        except fencepost.OutcomeUnknown as error:
            transaction.fate, told = Fate.UNKNOWN, repr(error)
            await producer.reinitialise()
        except (OnPurpose, fencepost.AbortableError) as error:
            transaction.fate, told = Fate.ABORTED, repr(error)
        except BaseException as error:
            told = repr(error)
            raise
        finally:
            self.world.tell(f"{writer.name} {producer.current}: transaction {number} of {len(transaction.sent)} {told}")
