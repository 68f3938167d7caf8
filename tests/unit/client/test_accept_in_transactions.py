"""Messages of a queue that transactions acknowledge, against a broker that does what a test says (KIP-1289's draft)."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

import fencepost
from fencepost import (
    AbortableError,
    AcknowledgementError,
    ErrorCode,
    FatalError,
    FencedError,
    Message,
    OutcomeUnknownError,
)
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import api1093_txn_share_acknowledge as api1093
from fencepost.protocol.messages.api26_end_txn import EndTxnResponse
from tests.kit.scripted_broker import HANG_UP
from tests.kit.share_broker import LOCK_S, NONE, ShareBroker

ASKED = "TxnShareAcknowledge"
REFUSED = ErrorCode.INVALID_RECORD_STATE


class TransactionalShareBroker(ShareBroker):
    """Its transactions acknowledge records, as far as `offers` says."""

    def __init__(self, count: int = 1, *, offers: bool = True, transaction_version: int = 2) -> None:
        super().__init__(count)
        self.offers = offers
        self.transaction_version = transaction_version

    def on_ApiVersions(self, request: Any, version: int) -> Any:
        answer = super().on_ApiVersions(request, version)
        for entry in answer.api_keys:
            if entry.api_key == ApiKey.TXN_SHARE_ACKNOWLEDGE and self.offers:
                entry.max_version = 0
        return answer

    def on_TxnShareAcknowledge(self, request: Any, version: int) -> Any:
        return self.taken(NONE)

    def taken(self, code: ErrorCode) -> api1093.TxnShareAcknowledgeResponse:
        part = api1093.TxnShareAcknowledgePartitionResponse(partition_index=0, error_code=code)
        topic = api1093.TxnShareAcknowledgeTopicResponse(topic_id=self.topic_id, partitions=[part])
        return api1093.TxnShareAcknowledgeResponse(responses=[topic])

    def in_transactions(self) -> list[tuple[tuple[int, int], int, int, list[int]]]:
        """All that came: the producer, and what it acknowledged."""
        return [
            ((request.producer_id, request.producer_epoch), batch.first_offset, batch.last_offset, kinds)
            for name, _, request in self.requests
            if name == ASKED
            for topic in request.topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
            for kinds in [list(batch.acknowledge_types)]
        ]

    def ends(self) -> list[bool]:
        """The ends of transactions: whether each is a commit."""
        return [request.committed for name, _, request in self.requests if name == "EndTxn"]


class Work(NamedTuple):
    """What a test works with."""

    producer: fencepost.TransactionalProducer
    queue: fencepost.Queue
    messages: list[Message[bytes, bytes]]


@pytest.fixture
async def serve(nursery: trio.Nursery) -> Callable[..., Any]:
    async def start(count: int = 1, **more: Any) -> TransactionalShareBroker:
        broker = TransactionalShareBroker(count, **more)
        await nursery.start(broker.serve)
        return broker

    return start


@asynccontextmanager
async def working(broker: ShareBroker) -> AsyncIterator[Work]:
    """A producer, and a queue with all of the broker's records in hand."""
    options: dict[str, Any] = {"random": random.Random(1), "retry_backoff": 0.001}
    async with (
        fencepost.Client(broker.address, **options) as kafka,
        kafka.transactional_producer("id") as producer,
        kafka.queue("t", group="g") as queue,
    ):
        messages = aiter(queue)
        yield Work(producer, queue, [await anext(messages) for _ in range(broker.count)])


async def accept_all(work: Work) -> None:
    async with work.producer.transaction() as txn:
        await txn.accept(*work.messages)


async def test_the_transaction_has_the_only_acknowledgement(serve: Any, autojump_clock: MockClock) -> None:
    """Within its block or without: no other acknowledgement, no renewal, and the queue may end (KIP-1222)."""
    broker = await serve(4)
    async with working(broker) as work:
        one, two, three, four = work.messages
        async with work.producer.transaction() as txn, one:
            await txn.accept(one, two, one)
            assert work.queue._hand.held.in_flight == 2
            await one.acknowledged()
            await txn.reject(three)
            four.accept()
            await trio.sleep(LOCK_S * 1.2)
    assert broker.in_transactions() == [((7, 1), 0, 1, [1]), ((7, 1), 2, 2, [3])]
    assert broker.acknowledgements() == [(3, 3, [1])]
    assert broker.ends() == [True]
    assert (work.queue.lost, repr(one)) == (0, "<Message t-0 0: delivery 1, accepted>")
    asked = next(request for name, _, request in broker.requests if name == ASKED)
    assert (asked.transactional_id, asked.group_id) == ("id", "g")
    assert asked.member_id == next(one.member_id for name, _, one in broker.requests if name == "ShareGroupHeartbeat")


async def test_after_an_abort_the_message_has_no_acknowledgement(serve: Any, autojump_clock: MockClock) -> None:
    broker = await serve()
    async with working(broker) as work:
        [message] = work.messages

        async def fail() -> None:
            async with message, work.producer.transaction() as txn:
                await txn.accept(message)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(AcknowledgementError) as error:
            await message.acknowledged()
        assert error.value.code is ErrorCode.TRANSACTION_ABORTABLE
        with pytest.raises(RuntimeError, match="decided already"):
            await accept_all(work)
    assert (broker.ends(), broker.acknowledgements()) == ([False], [])


async def test_a_lock_that_had_ended_aborts_the_transaction(serve: Any, autojump_clock: MockClock) -> None:
    """INVALID_RECORD_STATE: the output must not count. What the broker still takes is released by the block."""
    broker = await serve()
    broker.scripts[ASKED] = [broker.taken(REFUSED)]
    async with working(broker) as work:
        [message] = work.messages

        async def try_it() -> None:
            async with work.producer.transaction() as txn, message:
                await txn.send("t", b"output")
                await txn.accept(message)

        with pytest.raises(AbortableError) as error:
            await try_it()
        assert (error.value.code, error.value.api) == (REFUSED, ASKED)
    assert (broker.ends(), broker.acknowledgements()) == ([False], [(0, 0, [2])])


async def test_a_lock_that_ended_here_is_not_sent(serve: Any, autojump_clock: MockClock) -> None:
    """The record may be this member's again, in another message."""
    broker = await serve()
    async with working(broker) as work:
        await trio.sleep(LOCK_S * 1.2)
        with pytest.raises(AbortableError) as error:
            await accept_all(work)
        assert error.value.code is REFUSED
    assert broker.in_transactions() == []


@pytest.mark.parametrize("failure", ["moved", "lost"])
async def test_it_is_sent_again(serve: Any, autojump_clock: MockClock, failure: str) -> None:
    """To the partition's leader as the metadata has it then; the broker leaves what it has taken already."""
    broker = await serve()
    broker.scripts[ASKED] = [broker.taken(ErrorCode.NOT_LEADER_OR_FOLLOWER) if failure == "moved" else HANG_UP]
    async with working(broker) as work:
        await accept_all(work)
    assert broker.in_transactions() == [((7, 1), 0, 0, [1])] * 2
    names = broker.names(ASKED, "Metadata")
    assert names[names.index(ASKED) :] == [ASKED, "Metadata", ASKED] or failure == "lost"
    assert broker.ends() == [True]


@pytest.mark.parametrize(
    "lacking", [{"offers": False}, {"transaction_version": 1}], ids=["no such request", "transaction.version 1"]
)
async def test_a_broker_without_it(serve: Any, autojump_clock: MockClock, lacking: dict[str, Any]) -> None:
    """Apache Kafka; and a transaction whose end could not fence a late request (KIP-890)."""
    broker = await serve(**lacking)
    async with working(broker) as work:
        with pytest.raises(FatalError, match=r"unstable\.api\.versions\.enable=true.*Apache Kafka has no such request"):
            await accept_all(work)
        work.messages[0].accept()
        async with work.producer.transaction() as txn:
            await txn.send("t", b"it goes on")
    assert (broker.in_transactions(), broker.acknowledgements()) == ([], [(0, 0, [1])])


async def test_a_fenced_producer(serve: Any, autojump_clock: MockClock) -> None:
    """KIP-588: a stale epoch aborts, and the abort finds the newer producer."""
    broker = await serve()
    broker.scripts[ASKED] = [broker.taken(ErrorCode.INVALID_PRODUCER_EPOCH)]
    broker.scripts["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)]
    async with working(broker) as work:
        with pytest.raises(FencedError):
            await accept_all(work)
        work.messages[0].release()
        await work.messages[0].acknowledged()
    assert broker.acknowledgements() == [(0, 0, [2])]


async def test_an_unknown_outcome_is_no_confirmation_until_it_is_found(serve: Any, autojump_clock: MockClock) -> None:
    """As the transaction itself: `reinitialise` finds that it has committed."""
    broker = await serve()
    broker.on_EndTxn = lambda request, version: HANG_UP
    async with working(broker) as work:
        [message] = work.messages
        with pytest.raises(OutcomeUnknownError):
            await accept_all(work)
        with pytest.raises(AcknowledgementError):
            await message.acknowledged()
        del broker.on_EndTxn
        assert await work.producer.reinitialise()
        await message.acknowledged()


async def test_a_transaction_that_another_task_aborts(serve: Any, autojump_clock: MockClock) -> None:
    broker = await serve()

    async def late(request: Any, version: int) -> Any:
        await trio.sleep(1)
        return broker.taken(NONE)

    broker.on_TxnShareAcknowledge = late
    async with working(broker) as work, trio.open_nursery() as nursery:

        async def abort() -> None:
            async with work.producer.transaction() as txn:
                nursery.start_soon(txn.accept, *work.messages)
                await trio.sleep(0.5)

        with pytest.raises(RuntimeError, match="another task is still sending offsets or acknowledgements"):
            await abort()
        while work.messages[0]._record.result is None:  # noqa: ASYNC110 - no event of it
            await trio.sleep(0.1)
        with pytest.raises(AcknowledgementError):
            await work.messages[0].acknowledged()
    assert broker.ends() == [False]


async def test_a_cancelled_acceptance_spoils_the_transaction(serve: Any, autojump_clock: MockClock) -> None:
    """The broker may have taken it: a commit would count it, while the message is decided otherwise."""
    broker = await serve()

    async def late(request: Any, version: int) -> Any:
        await trio.sleep(1)
        return broker.taken(NONE)

    broker.on_TxnShareAcknowledge = late
    async with working(broker) as work:

        async def give_up() -> None:
            async with work.producer.transaction() as txn:
                with trio.move_on_after(0.5):
                    await txn.accept(*work.messages)

        with pytest.raises(AbortableError, match="Cancelled"):
            await give_up()
        work.messages[0].release()
    assert (broker.ends(), broker.acknowledgements()) == ([False], [(0, 0, [2])])
