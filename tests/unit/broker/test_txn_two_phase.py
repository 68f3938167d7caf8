"""InitProducerId v6 and what follows from it, through a whole node (rows T22, T23; KIP-939)."""

import pytest
import trio
import trio.testing

from fencepost.broker.network.dispatch import UnservedRequest
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.topics import TopicPartition
from tests.unit.broker.txn_node import INIT, running

MockClock = trio.testing.MockClock
E = ErrorCode
T0 = TopicPartition("t", 0)
UNSTABLE = "unstable.api.versions.enable=true"
ENABLED = (UNSTABLE, "transaction.two.phase.commit.enable=true")
LONG_SECONDS = 1000.0
"""More than the longest timeout that a transaction may ask for."""


@pytest.mark.parametrize(("settings", "highest"), [((), 5), ((UNSTABLE,), 6)])
async def test_version_6_is_there_only_where_unstable_versions_are_t22(
    settings: tuple[str, ...], highest: int, autojump_clock: MockClock
) -> None:
    """Kafka's latestVersionUnstable: neither advertised nor served without the switch."""
    async with running(*settings) as on:
        answer = await on.ask(18, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        assert {entry.api_key: entry.max_version for entry in answer.api_keys}[INIT] == highest
        if highest < 6:
            with pytest.raises(UnservedRequest, match="InitProducerId version 6"):
                await on.init(6)
        else:
            assert (await on.init(6)).error_code == E.NONE


async def test_two_phase_must_be_allowed_by_the_broker_t22(autojump_clock: MockClock) -> None:
    async with running(UNSTABLE) as on:
        assert (await on.init(6, enable2_pc=True)).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        answer = await on.init(6, enable2_pc=True, transactional_id=None)
        assert answer.error_code == E.NONE, "it means nothing without a transactional id"
        assert (await on.init(6, keep_prepared_txn=True)).error_code == E.NONE, "that may be asked for by itself"


async def test_the_operation_has_its_number_t22() -> None:
    assert AclOperation.TWO_PHASE_COMMIT == 15


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1_000, 2**31 - 1])
async def test_a_two_phase_transaction_waits_for_ever_t22(timeout_ms: int, autojump_clock: MockClock) -> None:
    """No timeout whatever the request says, and none above transaction.max.timeout.ms without enable2Pc."""
    async with running(*ENABLED) as on:
        refused = await on.init(6, transaction_timeout_ms=2**31 - 1)
        assert refused.error_code == E.INVALID_TRANSACTION_TIMEOUT
        held = await on.identity(version=6, enable2_pc=True, transaction_timeout_ms=timeout_ms)
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        await trio.sleep(LONG_SECONDS)
        assert await on.markers(T0) == []
        assert (await on.end(5, held, commit=True)).error_code == E.NONE
        assert await on.committed(T0) == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_prepared_transaction_is_ended_by_the_successor_t23(commit: bool, autojump_clock: MockClock) -> None:
    async with running(*ENABLED) as on:
        dead = await on.identity(version=6, enable2_pc=True)
        assert await on.produce(12, dead, T0, b"a", 0) == E.NONE
        answer = await on.init(6, enable2_pc=True, keep_prepared_txn=True)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == dead
        heir = (answer.producer_id, answer.producer_epoch)
        assert heir == (dead[0], dead[1] + 1)
        assert await on.committed(T0) == []
        assert (await on.end(5, dead, commit=not commit)).error_code == E.PRODUCER_FENCED
        assert await on.produce(12, heir, TopicPartition("t", 1), b"b", 0) == E.INVALID_TXN_STATE
        ended = await on.end(5, heir, commit=commit)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (E.NONE, heir[0], heir[1] + 1)
        assert await on.committed(T0) == [b"a"][not commit :]
        assert await on.markers(T0) == [("COMMIT" if commit else "ABORT", dead[1] + 1)]
        following = (ended.producer_id, ended.producer_epoch)
        assert await on.produce(12, following, T0, b"next", 0) == E.NONE
        assert (await on.end(5, following, commit=True)).error_code == E.NONE
        assert (await on.committed(T0))[-1] == b"next"


async def test_nothing_prepared_is_told_as_minus_one_t23(autojump_clock: MockClock) -> None:
    async with running(*ENABLED) as on:
        for _ in range(2):
            answer = await on.init(6, enable2_pc=True, keep_prepared_txn=True)
            assert (answer.error_code, answer.ongoing_txn_producer_id) == (E.NONE, -1)
            assert answer.ongoing_txn_producer_epoch == -1


async def test_who_does_not_keep_it_aborts_it_t23(autojump_clock: MockClock) -> None:
    """How a prepared transaction is ended by force, from any client of any version."""
    async with running(*ENABLED) as on:
        dead = await on.identity(version=6, enable2_pc=True)
        assert await on.produce(12, dead, T0, b"a", 0) == E.NONE
        heir = await on.identity(version=6, enable2_pc=True, keep_prepared_txn=True)
        newcomer = await on.identity(version=4)
        assert [kind for kind, _ in await on.markers(T0)] == ["ABORT"]
        assert newcomer > heir > dead
        for held in (dead, heir):
            assert (await on.end(5, held, commit=True)).error_code == E.PRODUCER_FENCED


async def test_a_transaction_that_becomes_two_phase_loses_its_timeout_t22(autojump_clock: MockClock) -> None:
    async with running(*ENABLED) as on:
        held = await on.identity(transaction_timeout_ms=3_000)
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        heir = await on.identity(version=6, enable2_pc=True, keep_prepared_txn=True)
        await trio.sleep(LONG_SECONDS)
        assert (await on.end(5, heir, commit=True)).error_code == E.NONE
        assert await on.committed(T0) == [b"a"]


async def test_one_that_is_only_kept_keeps_its_timeout_t22(autojump_clock: MockClock) -> None:
    async with running(UNSTABLE) as on:
        held = await on.identity(transaction_timeout_ms=3_000)
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        await on.identity(version=6, keep_prepared_txn=True)
        await trio.sleep(3.95)
        assert [kind for kind, _ in await on.markers(T0)] == ["ABORT"]


async def test_a_kept_transaction_survives_a_reload_t13(autojump_clock: MockClock) -> None:
    """Rows T13, T23: who holds it, and that it has no timeout, is in the log."""
    async with running(*ENABLED) as on:
        held = await on.identity(version=6, enable2_pc=True)
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        heir = await on.identity(version=6, enable2_pc=True, keep_prepared_txn=True)
        before = on.node.transactions.ids.state_of("orders")
        await on.node.transactions.start()
        assert on.node.transactions.ids.state_of("orders") == before
        await trio.sleep(LONG_SECONDS)
        assert (await on.end(5, heir, commit=True)).error_code == E.NONE
