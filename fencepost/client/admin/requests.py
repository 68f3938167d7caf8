"""Requests of the admin client, to any broker, the controller, a coordinator or a leader, until a deadline."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.errors import FatalError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import EncodeError, RequestValue, ResponseValue
from fencepost.protocol.topics import TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound=ResponseValue)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Route:
    """Finds the broker that is responsible for a thing. This one: any broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def node(self, item: Any) -> int | None:
        """The broker for the request, None for any. Raises KafkaError."""
        return None

    async def lost(self, item: Any, error: KafkaError) -> None:
        """The broker was the wrong one, or did not answer: look again before the next attempt."""


class ToBroker(Route):
    """A broker that the caller names."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        super().__init__(cluster)
        self._broker = broker

    async def node(self, item: Any) -> int | None:
        return self._broker

    async def lost(self, item: Any, error: KafkaError) -> None:
        """Its address may have changed."""
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            await self._cluster.refresh()


class ToController(Route):
    """The controller; any broker if none is known."""

    async def node(self, item: Any) -> int | None:
        """The controller in the last Metadata response."""
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
        """The leader; waits for a topic that is not known yet."""
        return await self._cluster.leader_of(TopicPartition(*item))

    async def lost(self, item: Any, error: KafkaError) -> None:
        """NOT_LEADER_OR_FOLLOWER and similar errors."""
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
        """NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or no response."""
        if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._cluster.forget_coordinator(self._kind, self._key if self._key is not None else item)


class AdminRequests:
    """Sends requests and repeats them, for all parts of an admin client."""

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        self.cluster = cluster
        self.purpose = purpose

    async def ask(
        self, node: int | None, request: RequestValue[R], what: str = "", *, at_least: int = 0, at_most: int = 1 << 15
    ) -> R:
        """Send one request and return the response. With `what`, raise an error of the response as a whole.

        Raises KafkaError (UNSUPPORTED_VERSION if the broker does not support the request).
        """
        try:
            response = await self.cluster.ask(node, request, purpose=self.purpose, at_least=at_least, at_most=at_most)
        except EncodeError as error:
            field, _, _ = str(error).partition(" = ")  # the value may be a secret
            raise KafkaError(
                f"{field}: the protocol cannot encode the value", api=API_BY_KEY[request.api_key].name, node=node
            ) from error
        whole = failure(response, what, request.api_key, node) if what else None
        if whole is not None:
            raise whole
        return response

    async def each(
        self,
        items: Iterable[K],
        route: Route,
        ask: Callable[[int | None, list[K]], Awaitable[Mapping[K, V | KafkaError]]],
        what: str,
    ) -> dict[K, V]:
        """Send one request to each broker that is responsible for some items, and repeat it for retriable errors.

        `ask` returns a value or an error for each of its items; items with a RetriableError are requested again until
        the deadline. Raises ItemsFailedError, and errors of `ask` itself, if they are not retriable.
        """
        asked = list(dict.fromkeys(items))
        found: dict[K, V] = {}
        failed: dict[K, KafkaError] = {}
        waiting: dict[K, RetriableError] = {}

        def settle(item: K, response: V | KafkaError) -> None:
            waiting.pop(item, None)
            if isinstance(response, RetriableError):
                waiting[item] = response
            elif isinstance(response, KafkaError):
                failed[item] = response
            else:
                found[item] = response

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
                    responses: Mapping[K, V | KafkaError] = await ask(node, some)
                except RetriableError as error:
                    responses = dict.fromkeys(some, error)
                for item in some:
                    settle(item, responses[item] if item in responses else _silent(what, node, item))
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
        """As `each` for one item; raises its error itself."""

        async def attempt() -> V:
            try:
                response = await ask(await route.node(item))
            except RetriableError as error:
                response = error
            if isinstance(response, RetriableError):
                await route.lost(item, response)
            if isinstance(response, KafkaError):
                raise response
            return response

        return await self.retry(attempt, what)

    async def response(
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
        """The response for one item, or the part of it that `part` selects; raises that part's error."""

        async def ask(node: int | None) -> Any:
            response = await self.ask(node, request, at_least=at_least)
            found = response if part is None else part(response)
            return failure(found, what, request.api_key, node, final=final) or found

        return await self.one(item, route, ask, what)

    async def retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Repeat `attempt` while it raises RetriableError, until `default_api_timeout` ends."""
        self.cluster.check_loop()
        return await self.cluster.policy.run(attempt, what=what)

    @property
    def timeout_ms(self) -> int:
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


_NAMES = ("name", "resource_name", "group_id", "transactional_id", "user")
"""The fields of a part of a response that name the thing that it is about."""


def failure(
    part: Any, what: str, api_key: int, node: int | None = None, *, final: Collection[ErrorCode] = ()
) -> KafkaError | None:
    """The error in a part of a response, None for none. `what` is "deleting topic 'a'".

    The client does not retry the codes in `final`.
    """
    code = code_of(part.error_code)
    if code is ErrorCode.NONE:
        return None
    words = getattr(part, "error_message", None) or None
    message = f"{what} failed" if words is None else f"{what}: {words}"
    api = API_BY_KEY[api_key].name
    subject = next((found for field in _NAMES if (found := getattr(part, field, None))), None)
    error = error_for(code, message, api=api, node=node, broker_message=words, subject=subject)
    if code in final and isinstance(error, RetriableError):
        # "Not yet" for a producer of a new topic means "no" for a request that names the topic.
        return KafkaError(message, code=code, api=api, node=node, broker_message=words, subject=subject)
    return error


def is_unsupported(error: KafkaError) -> bool:
    return isinstance(error, FatalError) and error.code is ErrorCode.UNSUPPORTED_VERSION


def _silent(what: str, node: int | None, item: Any) -> KafkaError:
    return KafkaError(
        f"{what}: the broker's response has no entry for {item!s}", code=ErrorCode.UNKNOWN_SERVER_ERROR, node=node
    )
