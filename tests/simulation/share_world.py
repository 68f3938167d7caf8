"""A broker and members of one share group in one process and one virtual time: one seed is one world (KIP-932).

python -m tests.simulation.share_world --seeds 1000 [--first N] [--trace] [--keep-going]

Requests and answers are lost, repeated and late; the broker is killed and its power cut in the middle of a call to its
disk; calls to the disk fail. The rules are those of tests/kit/share_check.py.
"""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, cast

import trio

from fencepost.coordinator.share.values import InitialState, Outcome, ShareKey, StateUpdate
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.determinism import run_seeded
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import everything, nothing, sampled
from tests.kit.share_check import ACCEPT, REJECT, RELEASE, Story, judge
from tests.kit.share_members import Ack, ShareMember
from tests.kit.sim_broker import SimBroker, sim_config
from tests.kit.sim_network import SimNetwork
from tests.kit.wire import batch_of, produce_request, records_in
from tests.simulation.broker_world import BrokerWorld
from tests.simulation.hashes import fix_hashes
from tests.simulation.lines import Lost
from tests.simulation.share_transactions import OUTPUT, Worker, committed_output

GROUP, TOPIC = "workers", "jobs"
NEVER_LATE = ("ShareFetch", "InitProducerId")
"""A copy of the first ShareFetch on another connection begins the member's session anew, and ends it with that
connection; one of InitProducerId aborts the transaction of a successor."""
LOCK_S, COUNT_LIMIT, PATIENCE = 1.0, 10, 4
SETTLE_S = 60.0
WAIT_MS = 300
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.state.topic.prune.interval.ms": "500",
    "share.coordinator.cold.partition.snapshot.interval.ms": "700",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(COUNT_LIMIT),
    "unstable.api.versions.enable": "true",
}


@dataclass
class ShareOutcome:
    """What a world leaves."""

    seed: int
    trace: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    produced: int = 0
    deliveries: int = 0
    committed: int = 0
    lives: int = 0


class ShareWorld(BrokerWorld):
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.outcome = ShareOutcome(seed)
        super().__init__(Random(seed), self.outcome.trace, NEVER_LATE)
        self.story = Story(lock_s=LOCK_S, count_limit=COUNT_LIMIT)
        random = self.random
        self.partitions = random.randint(1, 3)
        self.seconds = random.uniform(4.0, 12.0)
        self.members, self.blows, self.faults = (
            random.randint(1, 4),
            random.choice((0, 1, 2, 4)),
            random.choice((0, 1, 2)),
        )
        self.workers = random.choice((0, 0, 1, 2, 3))
        self.outages = random.choice((0, 0, 0, 1))
        self.slowest_flush = random.choice((0.01, 0.01, 0.2))
        self._asked: dict[str, dict[tuple[int, int, int], float]] = {}

    def note(self, name: str, *event: Any) -> None:
        """An event of share_check.py."""
        self.tell(f"{name} {event}")
        self.story.take(name, event, self._asked.setdefault(name, {}))

    async def run(self) -> ShareOutcome:
        """Everything, from the first start to the last look."""
        async with trio.open_nursery() as nursery:
            self.network = SimNetwork(nursery, self.weather, self.tell)
            own, flushes = self.fork(), self.fork()
            self.broker = SimBroker(
                nursery, self.network, own, sim_config(SETTINGS), lambda: flushes.uniform(0.0, self.slowest_flush)
            )
            assert await self.broker.start()
            self.topic_id = (await self.create_topics(self.line("admin"), {TOPIC: self.partitions, OUTPUT: 1}))[TOPIC]
            await self._initialize()
            async with trio.open_nursery() as side:
                side.start_soon(self._keep_alive)
                for number in range(self.members):
                    side.start_soon(self._member, f"m{number}", self.fork())
                for number in range(self.workers):
                    side.start_soon(self._worker, f"w{number}", self.fork())
                async with trio.open_nursery() as wrong:
                    wrong.start_soon(self._produce, self.fork())
                    for _ in range(self.blows):
                        wrong.start_soon(self._strike, self.fork())
                    for _ in range(self.faults):
                        wrong.start_soon(self._fail, self.fork())
                    for _ in range(self.outages):
                        wrong.start_soon(self._refuse, self.fork())
                self.tell("from here on nothing goes wrong any more")
                self.weather.calm = True
                await self._settle()
                if self.broker.node is not None:
                    self._crashed()
                    self.broker.kill()
                await trio.sleep(2 * LOCK_S)  # and nothing is delivered again
                for spot in await committed_output(self.line("reader")):
                    self.note("reader", "output", *spot)
                side.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        self.close_lines()
        verdict = judge(self.story)
        self.outcome.broken += verdict.violations
        self.outcome.produced, self.outcome.deliveries = verdict.counts["produced"], verdict.counts["deliveries"]
        self.outcome.committed, self.outcome.lives = verdict.counts["committed"], self.broker.lives
        return self.outcome

    async def _initialize(self) -> None:
        assert self.broker.node is not None
        keys = [ShareKey(GROUP, self.topic_id, number) for number in range(self.partitions)]
        outcomes = await self.broker.node.share_states.initialize(dict.fromkeys(keys, InitialState(1, 0)))
        assert not any(outcome.error for outcome in outcomes.values())

    # What goes wrong

    def _crashed(self) -> None:
        self.note("run", "broker killed", trio.current_time())

    async def _keep_alive(self) -> None:
        while True:
            await self.broker.ended()
            self._crashed()
            if self.broker.failure is not None and not self.faults:
                self.outcome.broken.append(f"the broker died: {self.broker.failure!r}")
            await trio.sleep(self.random.choice((0.0, 0.2, 1.0)))
            self.broker.disk.faults.clear()
            if await self.broker.start():
                self.tell("the broker is up")
            else:
                await trio.sleep(0.05)

    async def _strike(self, random: Random) -> None:
        """Kill the broker or cut its power, in the middle of a call to its disk."""
        await trio.sleep(random.uniform(0.5, self.seconds))
        power, fate = random.random() < 0.5, random.choice((everything, nothing, sampled, sampled))

        def strike() -> None:
            self.tell(f"{'power cut' if power else 'kill'} in life {self.broker.lives}")
            self._crashed()
            if power:
                self.broker.power_cut(fate)
            else:
                self.broker.kill()

        await self.strike_amid(strike, random.randint(1, 30))

    async def _fail(self, random: Random) -> None:
        """One of the next calls to the disk fails, or the disk is full for a while."""
        await trio.sleep(random.uniform(0.5, self.seconds))
        disk, at = self.broker.disk, self.broker.disk.io_count + random.randint(0, 20)
        fault = random.choice((Fault.once, Fault.full, partial(Fault.full, takes_bytes=20)))(at)
        self.tell(f"to fail: {fault}")
        disk.faults.append(fault)
        began = trio.current_time()
        await trio.sleep(random.uniform(0.1, 2.0))
        if fault in disk.faults:
            disk.faults.remove(fault)
        self.note("run", "disk failed", began, trio.current_time())

    async def _refuse(self, random: Random) -> None:
        """The share coordinator stores nothing for a while."""
        await trio.sleep(random.uniform(0.5, self.seconds))
        if self.broker.node is None:
            return
        states, began = vars(self.broker.node.share_states), trio.current_time()

        async def write(updates: Sequence[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
            await trio.lowlevel.checkpoint()
            return [Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * len(updates)

        self.tell("the share coordinator stores nothing")
        states["write"] = write
        await trio.sleep(random.uniform(0.5, 15.0))
        del states["write"]
        self.note("run", "disk failed", began, trio.current_time())

    # Those who take part

    async def _produce(self, random: Random) -> None:
        line, number, until = self.line("producer"), 0, trio.current_time() + self.seconds
        while trio.current_time() < until:
            partition, count = random.randrange(self.partitions), random.randint(1, 5)
            values = [f"v{number + at}" for at in range(count)]
            number += count
            request = produce_request(
                TOPIC,
                batch_of(*(one.encode() for one in values), timestamp_ms=self.broker.clock.now_ms()),
                partition=partition,
            )
            try:
                [answer] = (await line.ask(7, request)).responses[0].partition_responses
            except Lost:
                continue
            if not answer.error_code:
                for offset, value in enumerate(values, answer.base_offset):
                    self.note("producer", "ack", value, partition, offset)
            await trio.sleep(random.uniform(0.0, 0.3))

    async def _member(self, slot: str, random: Random) -> None:
        """A member after the other in one place; each has one connection."""
        number = 0
        while True:
            number += 1
            await _Member(self, f"{slot}.{number}", random).live()
            await trio.sleep(random.uniform(0.0, 0.5))

    async def _worker(self, slot: str, random: Random) -> None:
        number = 0
        while True:
            number += 1
            await Worker(self, GROUP, slot, f"{slot}.{number}", random).live()
            await trio.sleep(random.uniform(0.0, 0.5))

    async def _settle(self) -> None:
        """All is acknowledged in bounded time; after a start, if a log waits for one (`log_offline` on /ready)."""
        lags: Sequence[str] = ["no broker"]
        for _ in range(round(SETTLE_S / 0.2)):
            if self.broker.node is not None and self.broker.node.partitions.offline():
                self._crashed()
                self.broker.kill()
            lags = await self._lags() if self.broker.node is not None else ["no broker"]
            if not lags:
                return
            await trio.sleep(0.2)
        self.outcome.broken.append(f"stuck: {lags}")

    async def _lags(self) -> list[str]:
        node = self.broker.node
        assert node is not None
        keys = {ShareKey(GROUP, self.topic_id, number): -1 for number in range(self.partitions)}
        lags = []
        for key, one in (await node.share_states.summaries(keys)).items():
            log = node.partition(TopicPartition(TOPIC, key.partition))
            end = -1 if log is None else log.log_end_offset
            if one.error or one.start_offset + max(one.delivery_complete_count, 0) < end or end < 0:
                lags.append(f"{key.partition}: {one}, end {end}")
        return lags


class _Member:
    """One member on one connection."""

    def __init__(self, world: ShareWorld, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._line = world.line(name)
        self._core = ShareMember(cast(Any, None), GROUP, name, world.topic_id, range(world.partitions))
        self._acks: list[Ack] = []

    async def live(self) -> None:
        """Until it leaves, or an answer is lost."""
        began = asked_at = trio.current_time()
        until = began + self._random.uniform(0.5, 8.0)
        try:
            while trio.current_time() < until or self._world.weather.calm:
                asked_at = trio.current_time()
                if not await self._fetch():
                    return
                if self._random.random() < 0.3 and self._acks:
                    asked_at = trio.current_time()
                    await self._acknowledge(final=False)
            asked_at = trio.current_time()
            self._note("end", asked_at)
            await self._acknowledge(final=True)
        except Lost:
            self._note("end", asked_at)  # maybe; the broker sees the end of the connection between the two times
        finally:
            self._note("end", trio.current_time())
            self._line.close()

    def _note(self, *event: Any) -> None:
        self._world.note(self._name, *event)

    def _note_answers(self, acks: Sequence[Ack], codes: dict[int, int]) -> None:
        for ack in acks:
            self._note("answered", ack.partition, ack.first, ack.kind, codes[ack.partition], trio.current_time())

    def _ask(self) -> list[Ack]:
        acks, self._acks = self._acks, []
        for ack in acks:
            if ack.delay_ms:
                self._note("hold", ack.partition, ack.first, trio.current_time() + ack.delay_ms / 1000)
            self._note("ask", ack.partition, ack.first, ack.kind, trio.current_time())
        return acks

    async def _acknowledge(self, *, final: bool) -> None:
        acks = self._ask()
        answer = await self._line.ask(2, self._core.acknowledge_request(*acks, final=final), 3.0)
        if answer.error_code:
            raise Lost(True)
        self._core.epoch += 1
        parts = [part for topic in answer.responses for part in topic.partitions]
        self._note_answers(acks, {part.partition_index: part.error_code for part in parts})

    async def _fetch(self) -> bool:
        """Fetch, and choose what to say of each record; whether the session goes on."""
        random = self._random
        acks = self._ask() if self._core.epoch else []
        asked_at = trio.current_time()
        options = {"max_records": random.choice((1, 5, 40)), "wait_ms": WAIT_MS, "mode": random.choice((0, 1))}
        answer = await self._line.ask(2, self._core.fetch_request(*acks, **options), 3.0)
        received_at = trio.current_time()
        if answer.error_code:
            return False
        self._core.epoch += 1
        parts = [part for topic in answer.responses for part in topic.partitions]
        self._note_answers(acks, {part.partition_index: part.acknowledge_error_code for part in parts})
        for part in parts:
            values = {record.offset: (record.value or b"").decode() for record in records_in(part)}
            for one in part.acquired_records:
                for offset in range(one.first_offset, one.last_offset + 1):
                    times = one.delivery_count, asked_at, received_at
                    self._note("got", part.partition_index, offset, values[offset], *times)
                    kind = ACCEPT
                    if one.delivery_count < PATIENCE:
                        [kind] = random.choices((ACCEPT, RELEASE, REJECT, 0), (75, 10, 6, 9))
                    delay_ms = random.choice((0, 0, 100, 800, 3_000)) if kind == RELEASE else 0
                    if kind:
                        self._acks.append(Ack(part.partition_index, offset, offset, kind, delay_ms))
        if self._acks:
            await trio.sleep(LOCK_S * random.choice((0, 0, 0, 0.01, 0.3, 1.4)))
        if any(part.error_code for part in parts):
            await trio.sleep(0.05)
        return True


def run_share_world(seed: int) -> ShareOutcome:
    """The world of a seed, from beginning to end."""
    return run_seeded(seed, ShareWorld(seed).run)


def main() -> int:
    """Run worlds; 1 where one went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.share_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a world that went wrong")
    parser.add_argument("--trace", action="store_true", help="show what happened, also where all was well")
    arguments = parser.parse_args()
    fix_hashes("tests.simulation.share_world")
    logging.disable(logging.CRITICAL)
    wrong = 0
    sums = Counter[str]()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = run_share_world(seed)
        for name in ("produced", "deliveries", "committed", "lives"):
            sums[name] += getattr(outcome, name)
        if outcome.broken or arguments.trace:
            print("\n".join([*(outcome.trace if arguments.trace else ()), *outcome.broken]))
        if outcome.broken:
            wrong += 1
            again = f"python -m tests.simulation.share_world --trace --first {seed} --seeds 1"
            print(f"seed {seed}: see it again: {again}", flush=True)
            if not arguments.keep_going:
                break
    print(f"{arguments.seeds} worlds, {wrong} wrong; {', '.join(f'{count} {name}' for name, count in sums.items())}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
