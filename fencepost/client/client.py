"""The client: one cluster, one task group, and the producers, consumers and admins that are opened from it."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack

import anyio
from anyio.abc import TaskGroup

from fencepost.client.background import Background
from fencepost.client.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    QueueConfig,
    TransactionalProducerConfig,
)
from fencepost.client.config_parsing import from_dotted, parse
from fencepost.client.errors import FatalError
from fencepost.client.key_value import K, V
from fencepost.client.keywords import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    QueueOptions,
    TransactionalProducerOptions,
)
from fencepost.client.network.cluster import Cluster
from fencepost.client.network.security import ssl_context
from fencepost.client.network.wire import Dial, open_socket
from fencepost.client.own_task import OwnTask

if TYPE_CHECKING:
    from fencepost.client.admin import Admin
    from fencepost.client.consumer.consumer import Consumer
    from fencepost.client.group.subscription import Topics
    from fencepost.client.producer.producer import Producer
    from fencepost.client.queues.queue import Queue
    from fencepost.client.serializers import AnyDeserializer, AnySerializer
    from fencepost.client.transactions.producer import TransactionalProducer
    from fencepost.client.transactions.two_phase import TwoPhaseProducer

_NEEDS_LOOP = (
    "fencepost.Client needs an event loop: open it with `async with` in a function that `asyncio.run` or `trio.run`"
    " runs. Without an event loop use the blocking client: `from fencepost.sync import Client`"
)


class Client:
    """A connection to a cluster: `async with fencepost.Client("127.0.0.1:9092") as kafka`, under asyncio or trio.

    `bootstrap_servers` is "host:port,host:port" or a list. Options are ClientOptions: Kafka's names in snake_case, in
    seconds (or as a timedelta) and bytes. All background tasks run in one task group and end with the block; an
    unforeseen failure in one of them cancels the block and is raised from it. `random`, `wall_clock` (seconds since
    1970) and `dial` (which opens sockets) are for tests.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        random: Random | None = None,
        wall_clock: Callable[[], float] = time.time,
        dial: Dial = open_socket,
        **options: Unpack[ClientOptions],
    ) -> None:
        config = parse(ClientConfig, {"bootstrap_servers": bootstrap_servers, **options})
        self._set_up(config, {}, random, wall_clock, dial)

    def _set_up(
        self,
        config: ClientConfig,
        defaults: Mapping[str, Any],
        random: Random | None = None,
        wall_clock: Callable[[], float] = time.time,
        dial: Dial = open_socket,
    ) -> None:
        config.check()
        self._config = config
        self._defaults = defaults
        self._tls = ssl_context(config)
        self._random: Random = random if random is not None else Random()
        self._wall_clock = wall_clock
        self._dial = dial
        self._background: Background | None = None
        self._opened_cluster: Cluster | None = None
        self._nursery_manager: AbstractAsyncContextManager[TaskGroup] | None = None
        self._opened = 0

    def __repr__(self) -> str:
        state = "not open" if self._background is None else "closed" if self._background.closed else "open"
        return f"<Client of {self._config.servers}: {state}>"

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A client out of Kafka's own dotted names ("bootstrap.servers", "linger.ms", "group.id", ...).

        Options of producers and consumers become their defaults. Options of other clients that this one does not have
        are ignored, with one warning. Raises ConfigError for other names, and for values that are not accepted.
        """
        return _made(cls, config, open_socket)

    def __enter__(self) -> NoReturn:
        """Not to be opened with `with`. Raises FatalError, which names the blocking client."""
        raise FatalError(_NEEDS_LOOP)

    def __exit__(self, *error: object) -> None:
        """Never called; Python looks it up before it calls `__enter__`."""

    async def __aenter__(self) -> Self:
        try:
            anyio.get_current_task()
        except anyio.NoEventLoopError:
            raise FatalError(_NEEDS_LOOP) from None
        if self._opened_cluster is not None:
            raise RuntimeError("a Client can be opened only once")
        in_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
        self._nursery_manager = OwnTask() if in_asyncio else anyio.create_task_group()
        nursery = await self._nursery_manager.__aenter__()
        self._background = Background(nursery)
        self._opened_cluster = Cluster(
            self._config, self._background, self._random, self._wall_clock, self._dial, self._tls
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened_cluster is not None
        assert self._background is not None
        assert self._nursery_manager is not None
        self._opened_cluster.close()
        self._background.close()
        cancelled = error is not None and _only_cancelled(error)
        try:
            if cancelled:
                await self._nursery_manager.__aexit__(kind, error, trace)
            else:
                await self._nursery_manager.__aexit__(None, None, None)
        except BaseExceptionGroup as group:
            if error is not None and not cancelled:
                raise BaseExceptionGroup("the program and its client failed", [error, group]) from None
            if len(group.exceptions) == 1 and not isinstance(group.exceptions[0], BaseExceptionGroup):
                raise group.exceptions[0] from None
            raise

    @property
    def _cluster(self) -> Cluster:
        """The client's view of the cluster. Raises RuntimeError outside of the block."""
        if self._opened_cluster is None:
            raise RuntimeError("the client is not open: use it with `async with`")
        self._tasks.check_loop()
        return self._opened_cluster

    def producer(
        self,
        *,
        key_serializer: "AnySerializer[K] | None" = None,
        value_serializer: "AnySerializer[V] | None" = None,
        **options: Unpack[ProducerOptions],
    ) -> "Producer[K, V]":
        """An idempotent producer, to be opened with `async with`; options are ProducerOptions.

        Keys and values have the types that `key_serializer` and `value_serializer` take (see
        `fencepost.client.serializers`). Without serializers they are bytes.
        """
        from fencepost.client.producer.producer import Producer

        given = {**options, **_given(key_serializer=key_serializer, value_serializer=value_serializer)}
        config = parse(ProducerConfig, given, defaults=self._defaults)
        return Producer(self._cluster, self._tasks, config, self._purpose("producer"))

    def transactional_producer(
        self,
        transactional_id: str,
        *,
        key_serializer: "AnySerializer[K] | None" = None,
        value_serializer: "AnySerializer[V] | None" = None,
        **options: Unpack[TransactionalProducerOptions],
    ) -> "TransactionalProducer[K, V]":
        """A transactional producer, to be opened with `async with`, which fences older ones of the same id.

        `transaction_timeout` (seconds) is how long a transaction may be open before the coordinator aborts it.
        """
        from fencepost.client.transactions.lifecycle import TransactionManager
        from fencepost.client.transactions.producer import TransactionalProducer

        given = {**options, **_given(key_serializer=key_serializer, value_serializer=value_serializer)}
        config = parse(TransactionalProducerConfig, given, defaults=self._defaults)
        purpose = self._purpose("txn")
        return TransactionalProducer(TransactionManager(self._cluster, self._tasks, transactional_id, config, purpose))

    def two_phase_producer(
        self,
        transactional_id: str,
        *,
        key_serializer: "AnySerializer[K] | None" = None,
        value_serializer: "AnySerializer[V] | None" = None,
        **options: Unpack[TransactionalProducerOptions],
    ) -> "TwoPhaseProducer[K, V]":
        """A transactional producer whose commits an outside coordinator decides, such as a database (KIP-939).

        The broker needs `transaction.two.phase.commit.enable` and `unstable.api.versions.enable`. Its transactions have
        no timeout, so a prepared one waits for `complete`, also after a crash of either side.
        """
        from fencepost.client.transactions.two_phase import TwoPhaseManager, TwoPhaseProducer

        given = {**options, **_given(key_serializer=key_serializer, value_serializer=value_serializer)}
        config = parse(TransactionalProducerConfig, given, defaults=self._defaults)
        purpose = self._purpose("2pc")
        return TwoPhaseProducer(TwoPhaseManager(self._cluster, self._tasks, transactional_id, config, purpose))

    def consumer(
        self,
        *topics: "Topics",
        key_deserializer: "AnyDeserializer[K] | None" = None,
        value_deserializer: "AnyDeserializer[V] | None" = None,
        **options: Unpack[ConsumerOptions],
    ) -> "Consumer[K, V]":
        """A consumer of `topics`, to be opened with `async with`; options are ConsumerOptions.

        `topics` may have every form that `Consumer.subscribe` takes.

        Keys and values have the types that `key_deserializer` and `value_deserializer` return (see
        `fencepost.client.serializers`). Without deserializers they are bytes. A null key or value is None.
        """
        from fencepost.client.consumer.consumer import Consumer

        given = {**options, **_given(key_deserializer=key_deserializer, value_deserializer=value_deserializer)}
        config = parse(ConsumerConfig, given, defaults=self._defaults)
        return Consumer(self._cluster, self._tasks, topics, config, self._purpose("consumer"))

    def queue(
        self,
        *topics: "str | Iterable[str]",
        key_deserializer: "AnyDeserializer[K] | None" = None,
        value_deserializer: "AnyDeserializer[V] | None" = None,
        **options: Unpack[QueueOptions],
    ) -> "Queue[K, V]":
        """The records of `topics` as messages, shared among the members of a share group; options are QueueOptions.

        To be opened with `async with`. Each message goes to one member, which acknowledges it: KIP-932. Needs Apache
        Kafka 4.2 or later, or fencepost with the feature `share.version`. Deserializers are as those of a consumer.
        """
        from fencepost.client.queues.queue import Queue

        given = {**options, **_given(key_deserializer=key_deserializer, value_deserializer=value_deserializer)}
        config = parse(QueueConfig, given, defaults=self._defaults)
        return Queue(self._cluster, self._tasks, topics, config, self._purpose("queue"))

    def admin(self) -> "Admin":
        """Topics, configurations, groups and transactions; to be opened with `async with`."""
        from fencepost.client.admin import Admin

        return Admin(self._cluster, self._purpose("admin"))

    @property
    def _tasks(self) -> Background:
        assert self._background is not None
        return self._background

    def _purpose(self, kind: str) -> str:
        self._opened += 1
        return f"{kind}-{self._opened}"


C = TypeVar("C", bound=Client)


def dialing_client(config: Mapping[str, Any], dial: Dial) -> Client:
    """As `Client.from_config`, with another function that opens sockets."""
    return _made(Client, config, dial)


def _made(kind: type[C], config: Mapping[str, Any], dial: Dial) -> C:
    defaults = from_dotted(config)
    made = kind.__new__(kind)
    made._set_up(parse(ClientConfig, {}, defaults=defaults), defaults, dial=dial)
    return made


def _given(**options: Any) -> dict[str, Any]:
    """The options that are not None; the others keep their defaults, also those of `Client.from_config`."""
    return {name: value for name, value in options.items() if value is not None}


def _only_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(anyio.get_cancelled_exc_class())[1] is None
    return isinstance(error, anyio.get_cancelled_exc_class())
