"""The power goes between the flushes of EndTxn: whichever files have their end, the transaction is whole (row T7).

A transaction over two partitions and a group ends. The files of a round of flushes are synced in any order, and the
power goes before one of them. Under TV2 the Prepare record and the markers share a round (decision 0080), so any of the
markers may be on the disk without the decision.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
import trio

from fencepost.coordinator.txn import deciding
from fencepost.coordinator.txn.deciding import Decisions
from fencepost.coordinator.txn.doubts import Doubts
from tests.kit.determinism import nap, run_seeded
from tests.kit.disk_nodes import everything, nothing, sampled
from tests.kit.sim_broker import FLUSH_SECONDS, SimBroker, sim_config
from tests.kit.sim_network import ClearWeather, SimNetwork
from tests.simulation.broker_world import BrokerWorld
from tests.simulation.node_state import epochs_ahead, open_transactions, transactional_ids
from tests.simulation.sim_readers import committed_offsets, read_all
from tests.simulation.txn_client import TxnClient

PLACES = [("in", 0), ("in", 1)]
GROUP, TIMEOUT_MS = "g", 3000
FILES = 4
"""The coordinator's log, two partitions and `__consumer_offsets`."""
SEEDS = range(60)


@dataclass
class Found:
    """What a world was seen to do wrong, and how it came out."""

    wrong: list[str] = field(default_factory=list)
    ended: str = ""


class EndTxnWorld(BrokerWorld):
    """One transaction and a power cut or two: `seed` chooses the order of the flushes, and before which one."""

    def __init__(self, seed: int, version: int) -> None:
        self.found = Found()
        super().__init__(Random(seed), [], ())
        self._version = version
        self._commit = seed % 4 > 0
        self._flushes = [1 + seed % (FILES + 1)]
        if self.random.random() < 0.3:  # once more while the next life decides again
            self._flushes.append(self.random.randint(1, FILES))
        self._fate = (nothing, nothing, sampled, everything)[self.random.randrange(4)]
        self._retries = self.random.random() < 0.5
        self._is_told = False

    async def run(self) -> Found:
        """The transaction, the cuts, and what the next life makes of it."""
        async with trio.open_nursery() as nursery:
            self.network = SimNetwork(nursery, ClearWeather(), self.tell)
            self.broker = SimBroker(
                nursery, self.network, self.fork(), sim_config(), lambda: FLUSH_SECONDS, flush_order=self.fork()
            )
            assert await self.broker.start()
            line = self.line("writer")
            await self.create_topics(line, {"in": len(PLACES)})
            client = TxnClient(line, "tx", self._version, TIMEOUT_MS, self.fork(), self.tell)
            await client.init()
            for place in PLACES:
                await client.send(place, [f"{place[1]}"])
            await client.send_offsets(GROUP, {PLACES[0]: 1})
            async with trio.open_nursery() as ending:
                told = trio.Event()
                ending.start_soon(self._end, client, told)
                for flush in self._flushes:
                    await self.strike_amid(lambda: self.broker.power_cut(self._fate), flush, flushes_only=True)
                    await self.broker.ended()
                    assert await self.broker.start(), self.broker.failure
                    self._look_at_the_start()
                if self._retries:
                    await told.wait()
                ending.cancel_scope.cancel()
            await nap(TIMEOUT_MS / 1000 + 1)
            await self._look_at_the_end()
            nursery.cancel_scope.cancel()
        self.close_lines()
        return self.found

    async def _end(self, client: TxnClient, told: trio.Event) -> None:
        """The client asks again until it is told."""
        await client.end(commit=self._commit)
        self._is_told = True
        told.set()

    def _look_at_the_start(self) -> None:
        assert self.broker.node is not None
        self.found.wrong += epochs_ahead(self.broker.node)

    async def _look_at_the_end(self) -> None:
        node = self.broker.node
        assert node is not None
        line = self.line("reader")
        seen, _ = await read_all(line, PLACES, committed=True)
        position = (await committed_offsets(line, GROUP, PLACES[:1]))[PLACES[0]]
        parts = {len(seen[place]) for place in PLACES} | {position}
        outcome = dict(transactional_ids(node))["tx"].name
        if len(parts) > 1:
            self.found.wrong.append(f"torn: {seen}, position {position}, {outcome}")
        elif (outcome == "CompleteCommit") != (parts == {1}):
            self.found.wrong.append(f"{outcome}, and {seen} is committed")
        if self._is_told and outcome != ("CompleteCommit" if self._commit else "CompleteAbort"):
            self.found.wrong.append(f"{outcome}, and the client was told otherwise")
        self.found.wrong += open_transactions(node)
        self.found.ended = outcome


def run(version: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Counter[str], int]:
    """All worlds of a version: what was wrong, how transactions ended, and how many were decided again by a marker."""
    again = 0
    decide_again = Decisions._decide_again

    def counted(*arguments: object) -> None:
        nonlocal again
        again += 1
        decide_again(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Decisions, "_decide_again", counted)
    wrong: list[str] = []
    ended: Counter[str] = Counter()
    for seed in SEEDS:
        found = run_seeded(seed, EndTxnWorld(seed, version).run)
        wrong += [f"seed {seed}: {one}" for one in found.wrong]
        ended[found.ended] += 1
    return wrong, ended, again


def test_it_is_whole_whichever_files_have_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows T7, T8, T13: in some of the worlds a marker came first, and the transaction was decided by it."""
    wrong, ended, again = run(2, monkeypatch)
    assert wrong == []
    assert ended["CompleteCommit"] > 10
    assert ended["CompleteAbort"] > 10
    assert again > 5


def test_under_the_first_protocol_no_marker_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker of TV1 does not tell which transaction it ends, so it waits for the decision."""
    wrong, ended, again = run(1, monkeypatch)
    assert wrong == []
    assert ended["CompleteCommit"] > 10
    assert again == 0


def test_who_does_not_look_for_markers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without the rule of recovery, transactions are torn."""
    monkeypatch.setattr(Doubts, "look", lambda doubts: doubts._shards.clear())
    wrong, _, _ = run(2, monkeypatch)
    assert any("torn" in one for one in wrong)
    assert any("its coordinator by" in one for one in wrong)


def test_markers_of_the_first_protocol_that_come_first_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other negative control: a marker that proves nothing before its decision."""
    monkeypatch.setattr(deciding, "is_evidence", lambda state: True)
    wrong, _, _ = run(1, monkeypatch)
    assert any("torn" in one for one in wrong)
