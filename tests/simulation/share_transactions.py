"""A worker of a share world: a member whose transactions have its output and acknowledgements (KIP-1289's draft)."""

from contextlib import suppress
from random import Random
from typing import Any, Protocol, cast

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchRequest
from tests.kit.share_members import ACCEPT, REJECT, Ack, ShareMember
from tests.kit.share_transactions import txn_acknowledge_request
from tests.kit.wire import committed_values, fetch_request, records_in
from tests.simulation.lines import Line, Lost
from tests.simulation.txn_client import Abortable, Fenced, GaveUp, TxnClient
from tests.simulation.weather import SeededWeather

OUTPUT = "done"
TIMEOUT_MS = 1500
PATIENCE_SECONDS = 4.0
VERSION = 2


class World(Protocol):
    """What a worker needs of its world."""

    partitions: int
    topic_id: bytes
    weather: SeededWeather

    def line(self, client_id: str) -> Line: ...
    def note(self, name: str, *event: Any) -> None: ...
    def tell(self, event: str) -> None: ...


class _Client(TxnClient):
    async def acknowledge(self, member: ShareMember, *acks: Ack) -> None:
        """Have the transaction decide on records. Raises Fenced, Abortable and GaveUp."""
        request = txn_acknowledge_request(self.transactional_id, (self.producer_id, self.epoch), member, *acks)
        await self._ask(f"acknowledge {acks}", 0, request, _codes)


def _codes(answer: Any) -> list[int]:
    """Where the member does not hold a record any more, or a new leader never gave it, the transaction is aborted."""
    codes = [answer.error_code, *(part.error_code for topic in answer.responses for part in topic.partitions)]
    not_held = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    return [ErrorCode.TRANSACTION_ABORTABLE if code in not_held else code for code in codes]


class Worker:
    """One connection of a member, and one incarnation of a transactional id."""

    def __init__(self, world: World, group: str, slot: str, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._line = world.line(name)
        self._core = ShareMember(cast(Any, None), group, name, world.topic_id, range(world.partitions))
        self._slot = slot
        self._txn = self._incarnation(name)

    def _incarnation(self, name: str) -> _Client:
        line = self._world.line(f"{name} txn")
        return _Client(line, self._slot, VERSION, TIMEOUT_MS, self._random, self._world.tell, PATIENCE_SECONDS)

    async def live(self) -> None:
        """Until it leaves, is fenced, or an answer is lost; it may leave a transaction open."""
        until = trio.current_time() + self._random.uniform(0.5, 8.0)
        try:
            await self._txn.init()
            while trio.current_time() < until or self._world.weather.calm:
                records = await self._fetch()
                if records is None:
                    return
                if records and not await self._transact(records):
                    return
        except (Lost, Fenced, Abortable, GaveUp) as error:
            self._world.tell(f"{self._name} ends: {error!r}")
        finally:
            self._world.note(self._name, "end", trio.current_time())
            self._line.close()

    async def _fetch(self) -> dict[int, list[int]] | None:
        """The offsets that it acquired, by partition; None if the session is over."""
        asked_at = trio.current_time()
        options = {"max_records": self._random.choice((1, 5, 20)), "wait_ms": 300, "mode": 1}
        answer = await self._line.ask(2, self._core.fetch_request(**options), 3.0)
        received_at = trio.current_time()
        if answer.error_code:
            return None
        self._core.epoch += 1
        found: dict[int, list[int]] = {}
        for part in (part for topic in answer.responses for part in topic.partitions):
            values = {record.offset: (record.value or b"").decode() for record in records_in(part)}
            for one in part.acquired_records:
                for offset in range(one.first_offset, one.last_offset + 1):
                    spot = part.partition_index, offset
                    times = one.delivery_count, asked_at, received_at
                    self._world.note(self._name, "got", *spot, values[offset], *times)
                    found.setdefault(part.partition_index, []).append(offset)
            if part.error_code:
                await trio.sleep(0.05)
        return found

    async def _transact(self, records: dict[int, list[int]]) -> bool:
        """One transaction; whether the worker goes on."""
        began = trio.current_time()
        pending: list[tuple[int, int, float]] = []
        for partition, offsets in records.items():
            kind = self._random.choice((ACCEPT, ACCEPT, ACCEPT, REJECT))
            acks = [Ack(partition, offset, offset, kind) for offset in offsets]
            values = [f"{partition}:{offset}" for offset in offsets]
            first = self._random.random() < 0.5
            if first:
                await self._txn.send((OUTPUT, 0), values)
            await self._txn.acknowledge(self._core, *acks)
            pending += [(partition, offset, trio.current_time()) for offset in offsets]
            if not first:
                await self._txn.send((OUTPUT, 0), values)
        fate = "commit"
        if not self._world.weather.calm:
            fates = ("commit", "abort", "vanish", "late", "fenced")
            [fate] = self._random.choices(fates, (70, 10, 7, 8, 5))
        if fate == "late":
            await trio.sleep(self._random.uniform(0.5, 2.0) * TIMEOUT_MS / 1000)
        until = min(trio.current_time(), began + TIMEOUT_MS / 1000)
        for partition, offset, since in pending:
            self._world.note(self._name, "pending", partition, offset, since, until)
        if fate in ("vanish", "fenced"):
            self._world.note(self._name, "end", trio.current_time())
        if fate == "vanish":
            return False
        if fate == "fenced":
            await self._incarnation(f"{self._name} again").init()
        if fate == "abort":
            self._world.note(self._name, "end", trio.current_time())
        await self._txn.end(commit=fate != "abort")
        if fate == "fenced":
            raise AssertionError("a fenced producer's commit was answered NONE")
        if fate != "abort":
            for partition, offset, _ in pending:
                self._world.note(self._name, "committed", partition, offset, trio.current_time())
        return True


async def committed_output(line: Line) -> list[tuple[int, int]]:
    """Partition and offset of each record of the committed output, as often as it is there."""
    request: FetchRequest = fetch_request(OUTPUT, 0, isolation=1, max_bytes=1 << 24)
    while True:
        with suppress(Lost):  # the broker may start again now, with a slow disk
            answer = await line.ask(11, request)
            [part] = answer.responses[0].partitions
            if not part.error_code:
                break
        await trio.sleep(0.05)
    spots = [(value or b"").decode().split(":") for value in committed_values(part)]
    return [(int(partition), int(offset)) for partition, offset in spots]
