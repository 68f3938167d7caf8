"""How the admin client asks: any broker, the controller, a coordinator or a partition's leader, until a deadline."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.errors import FatalError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import KNOWN_BY_KEY
from fencepost.protocol.schema import EncodeError, RequestValue, ResponseValue
from fencepost.protocol.topics import TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound=ResponseValue)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Route:
    """Who answers for a thing. This one: any broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def node(self, item: Any) -> int | None:
        """The broker to ask, None for whichever. Raises KafkaError."""
        return None

    async def lost(self, item: Any, error: KafkaError) -> None:
        """The one that was asked was the wrong one, or is not there: look again before the next attempt."""


class ToBroker(Route):
    """The broker that is named."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        super().__init__(cluster)
        self._broker = broker

    async def node(self, item: Any) -> int | None:
        return self._broker

    async def lost(self, item: Any, error: KafkaError) -> None:
        """It may have another address by now."""
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            await self._cluster.refresh()


class ToController(Route):
    """The controller; any broker where there is none by name."""

    async def node(self, item: Any) -> int | None:
        """The controller as the last Metadata answer told it."""
        if self._cluster.controller_id not in self._cluster.brokers:
            await self._cluster.refresh()
        known = self._cluster.controller_id
        return known if known in self._cluster.brokers else None

    async def lost(self, item: Any, error: KafkaError) -> None:
        if error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION):
            await self._cluster.refresh()


class ToLeader(Route):
    """The leader of a partition."""

    async def node(self, item: Any) -> int | None:
        """The leader; a topic that is not known (yet) is waited for."""
        return await self._cluster.leader_of(TopicPartition(*item))

    async def lost(self, item: Any, error: KafkaError) -> None:
        """NOT_LEADER_OR_FOLLOWER and its kin."""
        await self._cluster.refresh([item[0]])


class ToCoordinator(Route):
    """The coordinator of a group or a transactional id."""

    def __init__(self, cluster: Cluster, kind: int, key: str | None = None) -> None:
        super().__init__(cluster)
        self._kind = kind
        self._key = key

    async def node(self, item: Any) -> int | None:
        """The coordinator of the item, or of the key that all items belong to."""
        return await self._cluster.coordinator(self._kind, self._key if self._key is not None else item)

    async def lost(self, item: Any, error: KafkaError) -> None:
        """NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or nobody answered."""
        if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._cluster.forget_coordinator(self._kind, self._key if self._key is not None else item)


class AdminRequests:
    """One way of asking, for all parts of an admin client."""

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        self.cluster = cluster
        self.purpose = purpose

    async def ask(
        self, node: int | None, request: RequestValue[R], what: str = "", *, at_least: int = 0, at_most: int = 1 << 15
    ) -> R:
        """One request, one answer. With `what`, an error of the answer as a whole is raised, and says that.

        Raises KafkaError (UNSUPPORTED_VERSION where the broker does not speak it).
        """
        try:
            answer = await self.cluster.ask(node, request, purpose=self.purpose, at_least=at_least, at_most=at_most)
        except EncodeError as error:
            field, _, _ = str(error).partition(" = ")  # the value may be a secret
            raise KafkaError(
                f"{field}: the protocol cannot say what was given", api=KNOWN_BY_KEY[request.api_key].name, node=node
            ) from error
        whole = failure(answer, what, request.api_key, node) if what else None
        if whole is not None:
            raise whole
        return answer

    async def each(
        self,
        items: Iterable[K],
        route: Route,
        ask: Callable[[int | None, list[K]], Awaitable[Mapping[K, V | KafkaError]]],
        what: str,
    ) -> dict[K, V]:
        """Ask for all items, one request to each broker that answers for some; retry those that may yet succeed.

        `ask` returns for each of its items a value or an error; RetriableErrors are asked again until the deadline.
        Raises ItemsFailedError; and what `ask` raises itself that is not retriable, as it concerns all items.
        """
        asked = list(dict.fromkeys(items))
        found: dict[K, V] = {}
        failed: dict[K, KafkaError] = {}
        waiting: dict[K, RetriableError] = {}

        def settle(item: K, answer: V | KafkaError) -> None:
            waiting.pop(item, None)
            if isinstance(answer, RetriableError):
                waiting[item] = answer
            elif isinstance(answer, KafkaError):
                failed[item] = answer
            else:
                found[item] = answer

        async def attempt() -> None:
            by_node: dict[int | None, list[K]] = {}
            for item in asked:
                if item not in found and item not in failed:
                    try:
                        by_node.setdefault(await route.node(item), []).append(item)
                    except KafkaError as error:
                        settle(item, error)
            for node, some in by_node.items():
                try:
                    answers: Mapping[K, V | KafkaError] = await ask(node, some)
                except RetriableError as error:
                    answers = dict.fromkeys(some, error)
                for item in some:
                    settle(item, answers[item] if item in answers else _silent(what, node, item))
                    if item in waiting:
                        await route.lost(item, waiting[item])
            if waiting:
                raise next(iter(waiting.values()))

        try:
            await self.retry(attempt, what)
        except RetriableError as late:
            failed |= {item: waiting.get(item, late) for item in asked if item not in found and item not in failed}
        if failed:
            raise ItemsFailedError(what, failed, found)
        return {item: found[item] for item in asked}

    async def one(self, item: K, route: Route, ask: Callable[[int | None], Awaitable[V | KafkaError]], what: str) -> V:
        """As `each` for one item whose error is raised as it is."""

        async def attempt() -> V:
            try:
                answer = await ask(await route.node(item))
            except RetriableError as error:
                answer = error
            if isinstance(answer, RetriableError):
                await route.lost(item, answer)
            if isinstance(answer, KafkaError):
                raise answer
            return answer

        return await self.retry(attempt, what)

    async def answer(
        self,
        item: Hashable,
        route: Route,
        request: RequestValue[R],
        what: str,
        part: Callable[[R], Any] | None = None,
        *,
        final: Collection[ErrorCode] = (),
        at_least: int = 0,
    ) -> Any:
        """What is answered about one item: all of it, or the part that tells how the item fared, which `part` picks."""

        async def ask(node: int | None) -> Any:
            answer = await self.ask(node, request, at_least=at_least)
            found = answer if part is None else part(answer)
            return failure(found, what, request.api_key, node, final=final) or found

        return await self.one(item, route, ask, what)

    async def retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Repeat `attempt` while it raises RetriableError, until `default_api_timeout` ends."""
        return await self.cluster.policy.run(attempt, what=what)

    @property
    def timeout_ms(self) -> int:
        """How long a broker may work on what it has to wait for."""
        return self.cluster.config.request_timeout_ms

    @property
    def any_broker(self) -> Route:
        return Route(self.cluster)

    @property
    def controller(self) -> Route:
        return ToController(self.cluster)

    @property
    def leader(self) -> Route:
        return ToLeader(self.cluster)


def listed(items: object, *kinds: type[T]) -> list[T]:
    """The items of an argument that takes one item, of these types, or several."""
    return [items] if isinstance(items, kinds) else list(cast(Iterable[T], items))


def failure(
    part: Any, what: str, api_key: int, node: int | None = None, *, final: Collection[ErrorCode] = ()
) -> KafkaError | None:
    """The error in a part of a response, None for none. The client does not retry the codes in `final`."""
    code = code_of(part.error_code)
    if code is ErrorCode.NONE:
        return None
    words = getattr(part, "error_message", None) or None
    message = what if words is None else f"{what}: {words}"
    api = KNOWN_BY_KEY[api_key].name
    error = error_for(code, message, api=api, node=node, broker_message=words)
    if code in final and isinstance(error, RetriableError):
        # "Not yet" for a producer of a new topic means "no" for a request that names the topic.
        return KafkaError(message, code=code, api=api, node=node, broker_message=words)
    return error


def is_unsupported(error: KafkaError) -> bool:
    """Whether the broker is too old for the question (or for one of its filters)."""
    return isinstance(error, FatalError) and error.code is ErrorCode.UNSUPPORTED_VERSION


def _silent(what: str, node: int | None, item: Any) -> KafkaError:
    return KafkaError(f"{what}: the broker says nothing about {item!s}", code=ErrorCode.UNKNOWN_SERVER_ERROR, node=node)
