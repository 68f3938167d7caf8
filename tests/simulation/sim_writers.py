"""The programs of a simulated world: writers of plain transactions, and copiers that consume, transform and produce."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import trio

from tests.kit.determinism import nap
from tests.kit.history import Fate, Place, Transaction, Writer
from tests.simulation.lines import Lost
from tests.simulation.sim_readers import committed_offsets, fetch, shown
from tests.simulation.txn_client import Abortable, Fenced, GaveUp, TxnClient

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

GROUP = "copiers"
BATCH_RECORDS = 5


class Crashed(Exception):
    """The program ends in the middle of what it does."""


class Program:
    """All incarnations of one transactional id, one after the other, but for zombies: those come back beside others."""

    nursery: trio.Nursery
    """Where it runs, and whoever replaces it: the world's end waits for all of them."""

    def __init__(self, world: "WholeWorld", transactional_id: str, version: int, random: Random) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.version = version
        self.random = random
        self.timeout_ms = random.choice((1000, 2000, 4000))
        self.alive = 0
        """How many of it mean to stay: each freeze may have brought one more."""
        self._incarnations = 0

    async def run(self) -> None:
        """Live until the work is done, or fenced while another one lives; raises nothing that a client may meet."""
        self.alive += 1
        while not self.finished():
            try:
                await self._incarnate()
            except (Fenced, GaveUp, Crashed, Abortable) as end:
                self.world.tell(f"{self.transactional_id}: incarnation ends: {end!r}")
                if isinstance(end, Fenced) and self.alive > 1:
                    break  # else the zombies of many freezes would come back and fence each other for ever
                await nap(self.random.uniform(0.0, 0.3))
        self.alive -= 1

    def finished(self) -> bool:
        """Whether nothing is left to do."""
        raise NotImplementedError

    async def work(self, client: TxnClient, name: str) -> None:
        """What one incarnation does. Raises what ends it."""
        raise NotImplementedError

    async def _incarnate(self) -> None:
        self._incarnations += 1
        name = f"{self.transactional_id}.{self._incarnations}"
        line = self.world.line(name, spared=self.version < 2)
        client = TxnClient(line, self.transactional_id, self.version, self.timeout_ms, self.random, self.world.tell)
        try:
            await self.take_over(client)
            await self.work(client, name)
        finally:
            line.close()

    async def take_over(self, client: TxnClient) -> None:
        """Become the producer of the id. Raises Fenced and GaveUp."""
        await client.init()
        self.world.note_fence(self.transactional_id, (client.producer_id, client.epoch), self.version)

    async def renew(self, client: TxnClient) -> None:
        """After an abort in the first protocol: what was refused, or came twice, left the sequences unknown.

        KIP-360 gives a fresh epoch. Raises Fenced and GaveUp.
        """
        if self.version < 2:
            await self.take_over(client)

    def maybe_crash(self) -> None:
        """Now and then, while things go wrong, a program ends in the middle of its transaction. Raises Crashed."""
        if self.random.random() < 0.03 and not self.world.weather.calm:
            raise Crashed

    def patience_seconds(self) -> float | None:
        """How long this commit is repeated; None for as long as the client likes. Who goes away leaves it undecided."""
        impatient = self.random.random() < self.world.plan.impatience and not self.world.weather.calm
        return 0.0 if impatient else None

    async def rest(self) -> None:
        """Between two transactions: mostly not, else so long that there is work while there are faults."""
        plan = self.world.plan
        longest = 3 * plan.seconds / plan.transactions
        await nap(self.random.choice((0.0, 0.01, self.random.uniform(0.0, longest))))

    async def maybe_freeze(self) -> None:
        """Now and then the program stands still, mostly for longer than its transaction may last.

        Half of the time somebody notices and starts another one in its place: what wakes up then is a zombie.
        """
        world = self.world
        if world.weather.calm or self.random.random() >= world.plan.freezes:
            return
        seconds = self.random.uniform(0.2, 2.0) * self.timeout_ms / 1000
        replaced = self.random.random() < 0.5
        world.tell(f"{self.transactional_id}: freezes for {seconds:.2f} s{', is replaced' if replaced else ''}")
        if replaced:
            world.start_program(self)
        await nap(seconds)
        world.tell(f"{self.transactional_id}: wakes up")


class PlainWriter(Program):
    """Writes transactions of some batches to some partitions, and commits most."""

    def __init__(
        self,
        world: "WholeWorld",
        transactional_id: str,
        version: int,
        random: Random,
        places: Sequence[Place],
        transactions: int,
    ) -> None:
        super().__init__(world, transactional_id, version, random)
        self._places = places
        self._left = transactions

    def finished(self) -> bool:
        return self._left <= 0 or self.world.weather.calm

    async def work(self, client: TxnClient, name: str) -> None:
        writer = Writer(name)
        self.world.history.writers.append(writer)
        number = 0
        while not self.finished():
            self._left -= 1
            number += 1
            await self._transaction(client, writer, number)
            await self.rest()

    async def _transaction(self, client: TxnClient, writer: Writer, number: int) -> None:
        transaction = writer.transactions[number] = Transaction()
        commit = self.random.random() < 0.75
        if await self._write(client, writer, number, transaction):
            await self.maybe_freeze()
            self.maybe_crash()
        else:
            commit = False
        if commit:
            await self._commit(client, transaction)
        else:
            await client.end(commit=False)
            transaction.fate = Fate.ABORTED
            await self.renew(client)

    async def _write(self, client: TxnClient, writer: Writer, number: int, transaction: Transaction) -> bool:
        """Whether all batches were taken; the others make an abort necessary."""
        for batch in range(self.random.randint(1, 3)):
            place = self.random.choice(self._places)
            values = [f"{writer.name}:{number}:{batch}{letter}" for letter in "abc"[: self.random.randint(1, 3)]]
            transaction.sent += [(place, value) for value in values]
            writer.order[place] += values
            try:
                await client.send(place, values)
            except Abortable:
                return False
            await self.maybe_freeze()
        return True

    async def _commit(self, client: TxnClient, transaction: Transaction) -> None:
        transaction.fate = Fate.UNKNOWN
        try:
            await client.end(commit=True, patience_seconds=self.patience_seconds())
        except (Fenced, Abortable):
            if not client.unsure:
                transaction.fate = Fate.ABORTED  # the first and only request was refused
            raise
        transaction.fate = Fate.COMMITTED


class Copier(Program):
    """Reads one topic, writes each record to another, and commits its position with it: all or nothing, once."""

    def __init__(
        self,
        world: "WholeWorld",
        transactional_id: str,
        version: int,
        random: Random,
        source: str,
        target: str,
        partitions: int,
    ) -> None:
        super().__init__(world, transactional_id, version, random)
        self._target = target
        self._places = [(source, number) for number in range(partitions)]
        self._drained = False

    def finished(self) -> bool:
        return self._drained

    async def work(self, client: TxnClient, name: str) -> None:
        line = self.world.line(name + ".reads", spared=True)
        try:
            positions = await committed_offsets(line, GROUP, self._places)
            while not self._drained:
                last_round = self.world.writers_done
                try:
                    answers = await fetch(line, positions, committed=True, wait_ms=300)
                except Lost:
                    await nap(0.05)
                    continue
                ends = []
                for place, (answer, data) in answers.items():
                    seen = shown(answer, data, positions[place], committed=True)
                    values = seen.values[:BATCH_RECORDS]
                    whole = len(values) == len(seen.values)
                    upto = seen.next_offset if whole else values[-1][0] + 1
                    if values and not await self._copy(client, place, [value for _, value in values], upto):
                        break
                    positions[place] = upto
                    ends.append(upto >= seen.high_watermark)
                else:
                    self._drained = last_round and all(ends)
                    await nap(0.05)
                    continue
                positions = await committed_offsets(line, GROUP, self._places)
        finally:
            line.close()

    async def _copy(self, client: TxnClient, source: Place, values: Sequence[str], upto: int) -> bool:
        """One transaction; whether it was committed."""
        commit = self.world.weather.calm or self.random.random() < 0.85
        try:
            await client.send((self._target, source[1]), values)
            await self.maybe_freeze()
            await client.send_offsets(GROUP, {source: upto})
            await self.maybe_freeze()
            self.maybe_crash()
        except Abortable:
            commit = False
        await client.end(commit=commit, patience_seconds=self.patience_seconds() if commit else None)
        if not commit:
            await self.renew(client)
        return commit
