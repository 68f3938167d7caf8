"""What happens before the first client is let in, and what may change while the node runs (rows T10, T12, T13)."""

import pytest
import trio
import trio.testing

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.network.context import Endpoint
from fencepost.broker.node import Node
from fencepost.coordinator.txn.completion import Completion
from fencepost.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import VirtualClock
from tests.unit.broker.txn_node import alter_broker, running

MockClock = trio.testing.MockClock
E = ErrorCode
T0 = TopicPartition("t", 0)


async def test_no_client_is_let_in_before_decided_transactions_are_on_their_way_t13(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no window: the listener opens when replay is over and each PREPARE has its task, and not before."""
    steps: list[str] = []
    gate = trio.Event()
    load, run = TransactionCoordinator.start, TransactionCoordinator.run

    async def slow_load(service: TransactionCoordinator) -> None:
        await gate.wait()
        await load(service)
        steps.append("loaded")

    async def seen_run(
        service: TransactionCoordinator, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        assert steps == ["loaded"]
        await run(service, task_status)

    monkeypatch.setattr(TransactionCoordinator, "start", slow_load)
    monkeypatch.setattr(TransactionCoordinator, "run", seen_run)
    node = Node(load_config(assignments=["storage=memory", "listeners=PLAINTEXT://127.0.0.1:0"]), clock=VirtualClock())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await trio.sleep(60)
        assert node.endpoint == Endpoint("", 0), "nothing listens while a log is read"
        answer = await node.transactions.init_producer_id("orders", 1_000)
        assert answer.error is E.COORDINATOR_LOAD_IN_PROGRESS
        gate.set()
        await trio.sleep(1)
        assert node.endpoint.port > 0
        assert (await node.transactions.init_producer_id("orders", 1_000)).error is E.NONE
        node.stop()


async def test_what_was_decided_is_begun_again_before_the_listener_opens_t13(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of PREPARE_x exist when `run` says that it has started, which is what the listener waits for."""

    async def never_completed(*_: object) -> bool:
        return False

    begun: list[str] = []
    resume = Completion.resume
    monkeypatch.setattr(Completion, "resume", lambda *args: (begun.append(args[2]), resume(*args)))
    async with running() as on:
        held = await on.identity()
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        before = on.node.transactions
        with monkeypatch.context() as patch:
            patch.setattr(Completion, "begin", lambda *args, **how: None)
            patch.setattr(Completion, "wait", never_completed)
            assert (await on.end(5, held, commit=True)).error_code == E.NONE
        assert before.ids.counts["PrepareCommit"] == 1
        assert begun == []
        again = TransactionCoordinator(
            logs=before.runtime._logs,  # the same log in the hands of the next process
            markers=on.node.markers,
            producer_ids=on.node.metadata,
            topics=on.node.metadata,
            clock=on.node.clock,
        )
        await again.start()
        async with trio.open_nursery() as nursery:
            await nursery.start(again.run)
            assert begun == ["orders"]
            await trio.sleep(1)
            assert again.ids.counts["CompleteCommit"] == 1
            nursery.cancel_scope.cancel()
        assert await on.committed(T0) == [b"a"]


async def test_the_longest_timeout_changes_at_run_time_t10(autojump_clock: MockClock) -> None:
    """What is open keeps the timeout that it was given."""
    async with running() as on:
        held = await on.identity(transaction_timeout_ms=20_000)
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        await alter_broker(on, "transaction.max.timeout.ms", "1000")
        refused = await on.init(transactional_id="other", transaction_timeout_ms=1_001)
        assert refused.error_code == E.INVALID_TRANSACTION_TIMEOUT
        await trio.sleep(19)
        assert await on.markers(T0) == []
        await trio.sleep(1.95)
        assert len(await on.markers(T0)) == 1


async def test_the_expiry_of_ids_changes_at_run_time_t12(autojump_clock: MockClock) -> None:
    async with running("transaction.remove.expired.transaction.cleanup.interval.ms=5000") as on:
        await on.identity()
        await trio.sleep(60)
        assert len(on.node.transactions.ids) == 1
        await alter_broker(on, "transactional.id.expiration.ms", "30000")
        await trio.sleep(6)
        assert len(on.node.transactions.ids) == 0
