"""As much of a node as the group handlers ask of, and requests that go through their own bytes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.network.reply import Encoded
from fencepost.coordinator.deferred import Deferred
from fencepost.coordinator.group.config import GroupConfig
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api11_join_group, api14_sync_group
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.kit import World

GROUP_APIS = (8, 9, 11, 12, 13, 14, 15, 16, 28, 42, 47)
TOPIC_ID = b"t".ljust(16, b"\0")
UNKNOWN_ID = b"?" * 16
ALL_OPERATIONS = 3400
"""Read, Delete, Describe, DescribeConfigs and AlterConfigs, as a bit each."""


@dataclass
class Topic:
    name: str
    topic_id: bytes


@dataclass
class Image:
    topics_by_id: dict[bytes, Topic] = field(default_factory=lambda: {TOPIC_ID: Topic("t", TOPIC_ID)})
    topics_by_name: dict[str, Topic] = field(default_factory=lambda: {"t": Topic("t", TOPIC_ID)})


@dataclass
class Metadata:
    image: Image = field(default_factory=Image)

    def exists(self, partition: TopicPartition) -> bool:
        return partition.topic in self.image.topics_by_name and 0 <= partition.partition < 3

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


@dataclass
class Transactions:
    """Answers `code` to every check, and remembers what it was asked."""

    code: ErrorCode = ErrorCode.NONE
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def is_remote(self, transactional_id: str) -> bool:
        return False

    async def ensure_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
        *,
        knows_abortable: bool,
        caller: Any,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, tuple(partitions), add, knows_abortable))
        return dict.fromkeys(partitions, self.code)


class Node:
    """As much of a node as the group handlers ask of."""

    def __init__(self, config: GroupConfig) -> None:
        self.world = World(config)
        self.groups = self.world.service
        self.authorizer = None
        self.metadata = Metadata()
        self.transactions = Transactions()
        self._dispatch = Dispatch()

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request through its own bytes to the handler, and its answer through its bytes back."""
        api = API_BY_KEY[api_key]
        asked = api.request.decode(api.request.encode(request, version), version)
        context = RequestContext(api_key, version, 1, "c", Session("127.0.0.1", Endpoint("h", 1)))
        answer = self._dispatch.route(api_key, version).handle(self, asked, context)  # type: ignore[arg-type]
        if isinstance(answer, Deferred):
            answer = answer.wait()
        if isawaitable(answer):
            answer = await answer
        encoded = b"".join(answer.parts) if isinstance(answer, Encoded) else api.response.encode(answer, version)
        return api.response.decode(encoded, version)

    async def one_member(self) -> tuple[str, int]:
        """A stable group g of one member, made by hand with the newest versions."""
        promised = await self.join(9, "")
        assert promised.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await self.join(9, promised.member_id)
        synced = await self.sync(5, joined)
        assert synced.error_code == ErrorCode.NONE
        return joined.member_id, joined.generation_id

    async def join(self, version: int, member_id: str, instance_id: str | None = None) -> Any:
        request = api11_join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[api11_join_group.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        return await self.ask(11, version, request)

    async def sync(self, version: int, joined: Any) -> Any:
        Assignment = api14_sync_group.SyncGroupRequestAssignment
        request = api14_sync_group.SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[Assignment(member_id=joined.member_id, assignment=b"A")],
        )
        return await self.ask(14, version, request)


def versions(api_key: int, since: int = 0) -> list[int]:
    low, high = API_BY_KEY[api_key].served
    return list(range(max(low, since), high + 1))
