"""How the admin client asks: any broker, the controller, a coordinator or a partition's leader, until a deadline."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from fencepost.client.cluster import GROUP, Cluster
from fencepost.client.errors import KafkaError, RetriableError, code_of, error_for
from fencepost.client.group_requests import by_topic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

T = TypeVar("T")


class AdminRequests:
    """The asking part of the admin client."""

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        self._cluster = cluster
        self._purpose = purpose

    async def _controller(
        self,
        api_key: int,
        request: Any,
        entries: Callable[[Any], Collection[Any]],
        what: str,
        *,
        final: Collection[ErrorCode] = (),
    ) -> Any:
        """Ask the controller; any broker where there is none by name."""

        async def node() -> int | None:
            if self._cluster.controller_id not in self._cluster.brokers:
                await self._cluster.refresh()
            known = self._cluster.controller_id
            return known if known in self._cluster.brokers else None

        async def attempt() -> Any:
            try:
                return await self._attempt(api_key, await node(), request, entries, what, final)
            except RetriableError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    await self._cluster.refresh()
                raise

        return await self._retry(attempt, what)

    async def _simple(
        self,
        api_key: int,
        request: Any,
        entries: Callable[[Any], Collection[Any]],
        what: str,
        *,
        node: int | None = None,
        final: Collection[ErrorCode] = (),
        at_least: int = 0,
    ) -> Any:
        return await self._retry(lambda: self._attempt(api_key, node, request, entries, what, final, at_least), what)

    async def _attempt(
        self,
        api_key: int,
        node: int | None,
        request: Any,
        entries: Callable[[Any], Collection[Any]],
        what: str,
        final: Collection[ErrorCode],
        at_least: int = 0,
    ) -> Any:
        api = API_BY_KEY[api_key]
        answer = await self._cluster.ask(node, api, request, purpose=self._purpose, at_least=at_least)
        for entry in entries(answer):
            code = code_of(entry.error_code)
            if code is not ErrorCode.NONE:
                told = getattr(entry, "error_message", None)
                raise final_error(error_for(code, f"{what}: {told}" if told else what, api=api.name, node=node), final)
        return answer

    async def _coordinator(
        self,
        api_key: int,
        group_id: str,
        request: Any,
        entries: Callable[[Any], Collection[Any]],
        ignored: Collection[ErrorCode],
    ) -> Any:
        api, what = API_BY_KEY[api_key], f"group {group_id!r}"

        def code_in(answer: Any) -> int:
            return next((int(e.error_code) for e in entries(answer) if e.error_code not in (0, *ignored)), 0)

        async def attempt() -> Any:
            ask = self._cluster.ask_coordinator
            answer = await ask(GROUP, group_id, api, request, code_in, purpose=self._purpose)
            if code_in(answer):
                raise error_for(code_of(code_in(answer)), what, api=api.name)
            return answer

        return await self._retry(attempt, what)

    async def _leader(self, partition: TopicPartition, api_key: int, request: Any) -> Any:
        """Ask a partition's leader; the partition's part of the answer."""

        async def attempt() -> Any:
            node = await self._cluster.leader_of(TopicPartition(*partition))
            answer = await self._cluster.ask(node, API_BY_KEY[api_key], request, purpose=self._purpose)
            found = answer.topics[0].partitions[0]
            code = code_of(found.error_code)
            if code is not ErrorCode.NONE:
                if code.retriable:
                    await self._cluster.refresh(by_topic([TopicPartition(*partition)]))
                raise error_for(code, f"{partition}", api=API_BY_KEY[api_key].name, node=node)
            return found

        return await self._retry(attempt, f"{partition}")

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        return await self._cluster.policy.run(attempt, what=what)


def final_error(error: KafkaError, final: Collection[ErrorCode]) -> KafkaError:
    """Codes that elsewhere mean "not yet" mean "no" where somebody asks about a thing by its name."""
    if error.code in final and isinstance(error, RetriableError):
        return KafkaError(str(error.args[0]), code=error.code, api=error.api, node=error.node)
    return error
