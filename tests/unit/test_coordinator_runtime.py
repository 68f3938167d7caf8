"""The runtime of coordinators over a log that other brokers may write to: load, unload, rewind and absorb."""

from collections.abc import Collection, Iterator, Sequence

import pytest
import trio
import trio.testing

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.ports import (
    KeyValue,
    LogBatchTooLarge,
    LogListener,
    LogNotHere,
    LogSuperseded,
    LogUnreadable,
    LogWriteFailed,
    ProducerTag,
    ReplayedBatch,
)
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.runtime.shard import Shard
from fencepost.protocol.errors import ErrorCode

NAME = "counter"
Sum = list[int]


class SharedTicket:
    """An append that has no place until the store commits it."""

    def __init__(self, log: "SharedLog", rows: list[list[KeyValue]]) -> None:
        self.rows = rows
        self.end_offset: int | None = None
        self.error: LogWriteFailed | None = None
        self._log = log
        self.ended = trio.Event()

    @property
    def is_durable(self) -> bool:
        return self.end_offset is not None

    async def durable(self) -> None:
        await self.ended.wait()
        if self.error is not None:
            raise self.error


class SharedLog:
    """A log in a store of several brokers: `commit` binds what waits, unless another writer was faster."""

    def __init__(self) -> None:
        self.rows: list[list[KeyValue]] = []
        self.listener: LogListener | None = None
        self.open: list[SharedTicket] = []
        self.damaged = False
        self.on_its_way: trio.Event | None = None
        """The second batch is in another process until this is set to None."""
        self.records_max = 1000
        """So many fit a batch."""

    @property
    def newest(self) -> SharedTicket:
        return self._ticket([])

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> SharedTicket:
        if len(records) > self.records_max:
            raise LogBatchTooLarge(ErrorCode.UNKNOWN_SERVER_ERROR, "too many records")
        return self._ticket([list(records)])

    def _ticket(self, rows: list[list[KeyValue]]) -> SharedTicket:
        ticket = SharedTicket(self, rows)
        self.open.append(ticket)
        return ticket

    def commit(self) -> None:
        waiting, self.open = self.open, []
        for ticket in waiting:
            self.rows += ticket.rows
            ticket.end_offset = len(self.rows)
            ticket.ended.set()

    def overtaken_by(self, value: int) -> None:
        """Another writer's row comes first, and what waits is refused."""
        self.rows.append([row(value)])
        waiting, self.open = self.open, []
        assert self.listener is not None
        self.listener.superseded()
        for ticket in waiting:
            ticket.error = LogSuperseded(ErrorCode.NOT_COORDINATOR, "another writer was faster")
            ticket.ended.set()

    def fence(self) -> None:
        """Another broker owns the log."""
        waiting, self.open = self.open, []
        assert self.listener is not None
        self.listener.fenced()
        for ticket in waiting:
            ticket.error = LogWriteFailed(ErrorCode.NOT_COORDINATOR, "another broker owns it")
            ticket.ended.set()

    def guest(self, value: int) -> None:
        """Another writer's row comes between, and refuses nothing."""
        self.rows.append([row(value)])
        assert self.listener is not None
        self.listener.apply_external(batch(len(self.rows) - 1, self.rows[-1]))

    def replay(self) -> Iterator[ReplayedBatch]:
        for number, records in enumerate(self.rows):
            if self.damaged and number == 1:
                raise LogUnreadable("the second batch is damaged")
            if self.on_its_way is not None and number == 1:
                raise LogNotHere("the second batch is elsewhere", self.on_its_way.wait)
            yield batch(number, records)


class SharedLogs:
    count = 2

    def __init__(self) -> None:
        self.logs = {0: SharedLog(), 1: SharedLog()}
        self.out_of_descriptors = False

    def log(self, partition: int) -> SharedLog:
        if self.out_of_descriptors:
            raise LogUnreadable("too many open files")
        return self.logs[partition]

    def existing(self) -> Collection[int]:
        return [number for number, log in self.logs.items() if log.rows]


def row(value: int) -> KeyValue:
    return b"add", b"%d" % value


def batch(number: int, records: Sequence[KeyValue]) -> ReplayedBatch:
    return ReplayedBatch(number, -1, -1, False, None, records, 0)


class Sums:
    """A machine: its state is the list of all numbers in the log."""

    def empty(self) -> Sum:
        return []

    def apply(self, state: Sum, record: int, /) -> Sum:
        return [*state, record]

    def encode(self, record: int, /) -> KeyValue:
        return row(record)

    def replay(self, state: Sum, batch: ReplayedBatch, /) -> int:
        state += [int(value or b"0") for _, value in batch.records]
        return 0


class Clock:
    def now_ms(self) -> int:
        return round(trio.current_time() * 1000)

    def monotonic(self) -> float:
        return trio.current_time()


class World:
    """One runtime with its hooks noted down."""

    def __init__(self) -> None:
        self.logs = SharedLogs()
        self.events: list[str] = []
        self.began = trio.current_time()
        self.runtime: CoordinatorRuntime[Sum, int, str] = CoordinatorRuntime("__sums", self.logs, Clock(), Sums(), self)
        self.partition = self.runtime.partition_for(NAME)
        self.log = self.logs.logs[self.partition]

    def loaded(self, shard: Shard[Sum, int]) -> None:
        self.events.append(f"loaded {shard.state}")

    def unloading(self, shard: Shard[Sum, int], code: ErrorCode) -> None:
        self.events.append(f"unloading {shard.state}: {code.name}")

    def id_of(self, timer: str) -> str:
        return timer

    async def expire(self, timer: str) -> None:
        self.events.append(f"{timer} after {trio.current_time() - self.began:.0f} s")

    async def run(self, value: int, replies: list[object]) -> None:
        """Add `value`; the reply is the sum that is then in the log."""

        def decide(state: Sum, _now_ms: int) -> Decision[int, int, None]:
            return Decision(sum(state) + value, (value,))

        try:
            replies.append((await self.runtime.run(NAME, decide)).reply)
        except LogWriteFailed as error:
            replies.append(error.code)

    @property
    def shard(self) -> Shard[Sum, int]:
        return self.runtime.shard_of(NAME)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_reply_leaves_once_its_ticket_is_durable(world: World, nursery: trio.Nursery) -> None:
    replies: list[object] = []
    nursery.start_soon(world.run, 3, replies)
    await trio.testing.wait_all_tasks_blocked()
    assert (world.shard.state, replies) == ([3], [])
    world.log.commit()
    await trio.testing.wait_all_tasks_blocked()
    assert replies == [3]


async def test_a_command_that_another_writer_overtook_is_decided_again(world: World, nursery: trio.Nursery) -> None:
    """The state goes back to what is in the log, with the other writer's row, and both commands are decided on it."""
    nursery.start_soon(world.runtime.serve)
    replies: list[object] = []
    nursery.start_soon(world.run, 3, replies)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(world.run, 4, replies)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(world.shard.state) == [3, 4]
    world.log.overtaken_by(100)
    assert world.shard.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.testing.wait_all_tasks_blocked()
    assert world.shard.state[0] == 100
    assert sorted(world.shard.state[1:]) == [3, 4]
    assert replies == []
    world.log.commit()
    await trio.testing.wait_all_tasks_blocked()
    assert max(replies) == 107  # type: ignore[type-var]
    assert world.shard.state == [int(value or b"") for batch in world.log.rows for _, value in batch]
    assert world.events == ["unloading [3, 4]: COORDINATOR_LOAD_IN_PROGRESS", "loaded [100]"] or world.events == [
        "unloading [4, 3]: COORDINATOR_LOAD_IN_PROGRESS",
        "loaded [100]",
    ]


async def test_a_row_that_refuses_nothing_is_absorbed(world: World) -> None:
    world.log.rows.append([row(1)])
    await world.runtime.load_all()
    world.log.guest(5)
    assert world.shard.state == [1, 5]
    assert world.shard.refusal is ErrorCode.NONE


async def test_a_fenced_shard_answers_not_coordinator_until_it_is_loaded_again(
    world: World, nursery: trio.Nursery
) -> None:
    replies: list[object] = []
    nursery.start_soon(world.run, 3, replies)
    await trio.testing.wait_all_tasks_blocked()
    world.log.fence()
    await trio.testing.wait_all_tasks_blocked()
    await world.run(4, replies)
    assert replies == [ErrorCode.NOT_COORDINATOR] * 2
    world.log.rows.append([row(9)])
    await world.runtime.load(world.partition)
    assert world.shard.state == [9]


async def test_the_timers_of_an_unloaded_shard_stop(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(world.runtime.serve)
    world.shard  # noqa: B018 - first use makes it
    other = next(name for name in map(str, range(9)) if world.runtime.partition_for(name) != world.partition)
    world.runtime.set_timer(NAME, 5_000)
    world.runtime.set_timer(other, 7_000)
    await trio.sleep(1)
    world.runtime.unload(world.partition)
    await trio.sleep(10)
    assert world.events == ["unloading []: NOT_COORDINATOR", f"{other} after 7 s"]


async def test_while_it_loads_requests_are_told_so_and_unload_ends_the_load(
    world: World, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.coordinator.runtime.runtime.BATCHES_AT_ONCE", 1)
    world.log.rows += [[row(1)], [row(2)], [row(3)]]
    replies: list[object] = []

    async def meanwhile() -> None:
        await world.run(4, replies)
        world.runtime.unload(world.partition)

    async with trio.open_nursery() as loading:
        loading.start_soon(world.runtime.load, world.partition)
        await trio.lowlevel.checkpoint()
        loading.start_soon(meanwhile)
    assert replies == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.shard.refusal is ErrorCode.NOT_COORDINATOR
    assert world.events == [], "a load that was ended resumes nothing"
    with pytest.raises(LogWriteFailed, match="not active"):
        await world.runtime.loaded(world.shard)
    await world.runtime.load(world.partition)
    assert world.shard.state == [1, 2, 3]


async def test_an_unreadable_log_costs_its_own_ids_only(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """T13."""
    world.log.rows += [[row(1)], [row(2)]]
    world.logs.logs[1 - world.partition].rows.append([row(7)])
    world.log.damaged = True
    await world.runtime.load_all()
    assert world.shard.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.shard.state == []
    assert world.events == ["loaded [7]"]
    assert "cannot be replayed" in caplog.text
    world.log.damaged = False
    await world.runtime.load(world.partition)
    assert world.shard.state == [1, 2], "repaired, it can be loaded while the process lives"


async def test_a_first_use_that_fails_is_tried_again_by_the_next_request(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A moment without descriptors must not cost the partition until the next start."""
    world.logs.out_of_descriptors = True
    replies: list[object] = []
    await world.run(1, replies)
    assert replies == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert "cannot be opened: too many open files" in caplog.text
    world.logs.out_of_descriptors = False
    assert world.shard.refusal is ErrorCode.NONE


async def test_a_decision_is_announced_before_it_is_durable(world: World, nursery: trio.Nursery) -> None:
    """A group's timers start then: a flush may take longer than a session."""
    announced: list[int] = []

    async def run() -> None:
        await world.runtime.run(
            NAME, lambda state, now_ms: Decision(7, (7,)), decided=lambda decision: announced.append(decision.reply)
        )

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    assert announced == [7]
    assert not world.log.open[-1].is_durable
    nursery.cancel_scope.cancel()


async def test_what_was_noted_is_appended_before_the_shard_goes(world: World) -> None:
    world.shard.note(6)
    world.runtime.unload(world.partition)
    world.log.commit()
    assert world.log.rows == [[row(6)]]


async def test_what_was_noted_goes_into_the_batch_of_the_next_write(world: World) -> None:
    world.shard.note(6)
    assert world.shard.write([7]) is world.log.open[-1]
    assert world.log.open[-1].rows == [[row(6), row(7)]]


async def test_notes_that_are_too_large_for_one_batch_with_a_record_go_before_it(world: World) -> None:
    """A record that fits is never refused for what the shard had put off."""
    world.log.records_max = 3
    for value in (1, 2, 3, 4, 5):
        world.shard.note(value)
    world.shard.write([6, 7, 8])
    world.log.commit()
    assert [one for rows in world.log.rows for one in rows] == [row(value) for value in range(1, 9)]
    assert world.log.rows[-1] == [row(6), row(7), row(8)]


async def test_a_record_that_is_too_large_is_refused_and_the_notes_stay_in_order(world: World) -> None:
    world.log.records_max = 2
    world.shard.note(1)
    with pytest.raises(LogBatchTooLarge):
        world.shard.write([2, 3, 4])
    world.shard.write([5])
    world.log.commit()
    assert [one for rows in world.log.rows for one in rows] == [row(1), row(5)]


@pytest.mark.parametrize("ended", [False, True])
async def test_a_load_waits_for_bytes_that_another_process_keeps(
    world: World, nursery: trio.Nursery, ended: bool
) -> None:
    """And an unload meanwhile ends it: the bytes that arrive then wake nothing."""
    world.log.rows += [[row(1)], [row(2)]]
    arrival = world.log.on_its_way = trio.Event()
    nursery.start_soon(world.runtime.load, world.partition)
    await trio.testing.wait_all_tasks_blocked()
    assert world.shard.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if ended:
        world.runtime.unload(world.partition)
    world.log.on_its_way = None
    arrival.set()
    await trio.testing.wait_all_tasks_blocked()
    assert world.shard.refusal is (ErrorCode.NOT_COORDINATOR if ended else ErrorCode.NONE)
    assert world.shard.state == ([] if ended else [1, 2])
