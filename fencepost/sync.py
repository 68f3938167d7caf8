"""The client for programs without trio: the same names, blocking. One thread per Client runs trio.

Records cross between the threads in batches, never one by one: use `send_many` and `batches`.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from fencepost.client import Admin as AsyncAdmin
from fencepost.client import Client as AsyncClient
from fencepost.client import Consumer as AsyncConsumer
from fencepost.client import ConsumerBatch, KafkaError, PreparedTransaction, RecordMetadata
from fencepost.client import Producer as AsyncProducer
from fencepost.client import Transaction as AsyncTransaction
from fencepost.client import TransactionalProducer as AsyncTransactionalProducer
from fencepost.client import TwoPhaseProducer as AsyncTwoPhaseProducer
from fencepost.client.producer import SendMany
from fencepost.client.transaction import TransactionContext
from fencepost.protocol.topics import TopicPartition

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Producer",
    "Transaction",
    "TransactionalProducer",
    "TwoPhaseProducer",
    "fail_after",
]

T = TypeVar("T")
CHUNK = 500


class _Local(threading.local):
    deadline: float | None = None
    in_hand: AsyncConsumer | None = None


_local = _Local()


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """Calls of this thread inside the block raise trio.TooSlowError once `seconds` have passed."""
    outer, mine = _local.deadline, time.monotonic() + seconds
    _local.deadline = mine if outer is None else min(outer, mine)
    try:
        yield
    finally:
        _local.deadline = outer


class _Loop:
    """The thread in which trio runs, and the way into it."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fencepost", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop = trio.Event()
        self._down = trio.Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the thread; returns when the client is open. Raises what opening it raised."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised in the program's thread by `call` and `close`
            self._error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        try:
            async with self._client:
                self._token = trio.lowlevel.current_trio_token()
                self._ready.set()
                await self._stop.wait()
        finally:
            self._down.set()

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `function(*args)` in the trio thread and wait for it; its result or exception comes out here."""
        if self._token is None or not self._thread.is_alive():
            raise self._gone()
        deadline = _local.deadline
        within = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            return trio.from_thread.run(self._bounded, within, function, args, trio_token=self._token)
        except trio.RunFinishedError:
            raise self._gone() from self._error

    async def _bounded(self, within: float | None, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
        result: list[T] = []
        failure: list[BaseException] = []

        async def work() -> None:
            try:
                result.append(await function(*args))
            except Exception as error:  # noqa: BLE001 - handed to the calling thread
                failure.append(error)
            nursery.cancel_scope.cancel()

        with trio.move_on_after(within if within is not None else float("inf")) as limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work)
                await self._down.wait()
                nursery.cancel_scope.cancel()
        if failure:
            raise failure[0]
        if result:
            return result[0]
        if limit.cancelled_caught:
            raise trio.TooSlowError
        raise self._gone()

    def _gone(self) -> Exception:
        if isinstance(self._error, Exception):
            return self._error
        return KafkaError("the client is closed")

    def close(self) -> None:
        """End the client and its thread. Raises what its background tasks raised, if anything."""
        if self._token is not None and self._thread.is_alive():
            try:
                trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
            except trio.RunFinishedError:
                pass  # it ended by itself; what it ended with is raised below
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error


class _Opened:
    """Something that is opened and closed in the trio thread."""

    def __init__(self, loop: _Loop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner

    def __enter__(self) -> Self:
        self._loop.call(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call(self._inner.__aexit__, kind, error, trace)


class Client:
    """As fencepost.Client, blocking: `with Client("127.0.0.1:9092") as kafka`."""

    def __init__(self, bootstrap_servers: str | Iterable[str], **options: Any) -> None:
        self._client = AsyncClient(bootstrap_servers, **options)
        self._loop = _Loop(self._client)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Client":
        """A client out of Kafka's own dotted names."""
        made = cls.__new__(cls)
        made._client = AsyncClient.from_config(config)
        made._loop = _Loop(made._client)
        return made

    def __enter__(self) -> Self:
        self._loop.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.close()

    def producer(self, **options: Any) -> "Producer":
        """An idempotent producer, to be opened with `with`."""
        return Producer(self._loop, self._client.producer(**options))

    def transactional_producer(self, transactional_id: str, **options: Any) -> "TransactionalProducer":
        """A transactional producer, to be opened with `with`."""
        return TransactionalProducer(self._loop, self._client.transactional_producer(transactional_id, **options))

    def two_phase_producer(self, transactional_id: str, **options: Any) -> "TwoPhaseProducer":
        """A producer whose commits an outside coordinator decides (KIP-939), to be opened with `with`."""
        return TwoPhaseProducer(self._loop, self._client.two_phase_producer(transactional_id, **options))

    def consumer(self, *topics: str, **options: Any) -> "Consumer":
        """A consumer, to be opened with `with`."""
        return Consumer(self._loop, self._client.consumer(*topics, **options))

    def admin(self) -> "Admin":
        """The admin client, to be opened with `with`; its calls are those of fencepost.Admin, blocking."""
        return Admin(self._loop, self._client.admin())


class _Sending:
    """`send` and `send_many` of a transaction or a batch."""

    _loop: _Loop
    _sender: AsyncTransaction | SendMany

    def send(self, topic: str, value: Any = None, **more: Any) -> None:
        """Hand in one record; for many, `send_many` is far cheaper."""
        self._loop.call(lambda: self._sender.send(topic, value, **more))

    def send_many(self, topic: str, records: Iterable[tuple[Any, Any]]) -> None:
        """Hand in (key, value) pairs of one topic, 500 at a time."""
        source = iter(records)
        while chunk := list(islice(source, CHUNK)):
            self._loop.call(self._sender.send_many, topic, chunk)


class Producer(_Opened):
    """As fencepost.Producer, blocking."""

    _inner: AsyncProducer

    def send(self, topic: str, value: Any = None, **more: Any) -> RecordMetadata:
        """Send one record and wait for its acknowledgement."""
        return self._loop.call(lambda: self._inner.send(topic, value, **more))

    def flush(self) -> None:
        """Return when everything handed in so far is acknowledged or has failed."""
        self._loop.call(self._inner.flush)

    def batch(self) -> "Batch":
        """Many records at once; see fencepost.Producer.batch."""
        return Batch(self._loop, self._inner.batch())


class Batch(_Opened, _Sending):
    """Many records: the end of the block waits for all acknowledgements."""

    def __init__(self, loop: _Loop, inner: SendMany) -> None:
        super().__init__(loop, inner)
        self._sender = inner


class TransactionalProducer(_Opened):
    """As fencepost.TransactionalProducer, blocking."""

    _inner: AsyncTransactionalProducer

    def transaction(self) -> "Transaction":
        """A transaction: commits at the end of the block, aborts when it ends with an exception."""
        consumer = _local.in_hand
        tied = consumer if consumer is not None and consumer.group_id is not None and not consumer.at_rest() else None
        return Transaction(self._loop, self._inner.transaction(consumer=tied))

    def flush(self) -> None:
        """Return when everything handed in so far is acknowledged or has failed."""
        self._loop.call(self._inner.flush)

    def reinitialise(self) -> None:
        """Settle what OutcomeUnknown left open, and go on."""
        self._loop.call(self._inner.reinitialise)


class TwoPhaseProducer(TransactionalProducer):
    """As fencepost.TwoPhaseProducer, blocking."""

    _inner: AsyncTwoPhaseProducer

    @property
    def prepared(self) -> PreparedTransaction | None:
        """The transaction that waits for its outcome."""
        return self._inner.prepared

    @property
    def identity(self) -> str:
        """This producer's own "PRODUCER_ID:EPOCH"; let only its owner decide."""
        return self._inner.identity

    def complete(self, decided: PreparedTransaction | str | None) -> bool:
        """End what is prepared: commit it if it is what was decided, abort it otherwise. Whether it committed."""
        return self._loop.call(self._inner.complete, decided)


class Transaction(_Opened, _Sending):
    """One transaction."""

    _inner: TransactionContext

    def __enter__(self) -> Self:
        self._sender = self._loop.call(self._inner.__aenter__)
        return self

    def prepare(self) -> PreparedTransaction:
        """Everything is acknowledged, and from here on only the outside decision ends the transaction (KIP-939)."""
        assert isinstance(self._sender, AsyncTransaction)
        return self._loop.call(self._sender.prepare)

    def send_offsets(self, consumer: "Consumer", offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Make the consumer's positions part of the transaction."""
        assert isinstance(self._sender, AsyncTransaction)
        self._loop.call(self._sender.send_offsets, consumer._inner, offsets)


class Consumer(_Opened):
    """As fencepost.Consumer, blocking; records come in batches only."""

    _inner: AsyncConsumer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _local.in_hand is self._inner:
            _local.in_hand = None
        super().__exit__(kind, error, trace)

    def batches(self, max_records: int | None = None, max_wait: float = 0.0) -> Iterator[ConsumerBatch]:
        """Batches for ever, as fencepost.Consumer.batches gives them."""
        source = self._inner.batches(max_records, max_wait)
        while True:
            batch = self._loop.call(source.__anext__)
            _local.in_hand = self._inner
            yield batch

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return self._inner.assignment

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions and no others."""
        self._soon(self._inner.assign, partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self._soon(self._inner.seek, partition, offset)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program will get."""
        return self._loop.call(self._inner.position, partition)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions (or `offsets`), outside of transactions."""
        self._loop.call(self._inner.commit, offsets)

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets."""
        return self._loop.call(self._inner.committed, *partitions)

    def lag(self) -> dict[TopicPartition, int | None]:
        """Offsets between each position and what may be read."""
        return self._inner.lag()

    def _soon(self, function: Callable[..., None], *args: Any) -> None:
        async def run() -> None:
            function(*args)

        self._loop.call(run)


class Admin(_Opened):
    """As fencepost.Admin: every method by its name, blocking."""

    _inner: AsyncAdmin

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)
        return lambda *args, **more: self._loop.call(lambda: method(*args, **more))
