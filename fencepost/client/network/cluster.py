"""The client's view of the cluster: brokers, topics, coordinators, features; and the connections to its brokers."""

import logging
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import anyio

from fencepost.client.background import Background
from fencepost.client.config import ClientConfig
from fencepost.client.core.partitioner import Random
from fencepost.client.core.partitions import NO_LEADER, PartitionInfo, TopicInfo, check_topic_name, newer_of
from fencepost.client.errors import ConnectionLostError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.network.connection import Connection
from fencepost.client.network.connections import Address, Connections
from fencepost.client.network.retry import RetryPolicy
from fencepost.client.network.wire import Dial, open_socket
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import RequestValue, ResponseValue
from fencepost.protocol.topics import TopicPartition

_LOG = logging.getLogger(__name__)
R = TypeVar("R", bound=ResponseValue)
GROUP, TRANSACTION = 0, 1
LOST_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class ByVersion(NamedTuple, Generic[R]):
    """A request that is built once its version is known."""

    api_key: ApiKey
    made: Callable[[int], RequestValue[R]]


Request = RequestValue[R] | ByVersion[R]


def topic_error(name: str, code: ErrorCode) -> KafkaError:
    """The error for a topic with `code` in a Metadata response."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        what = f"topic {name!r} does not exist; `fencepost topic create {name}` creates it"
    elif code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        what = f"{name!r} is not a valid name of a topic"
    else:
        what = f"the broker returned no metadata of topic {name!r}"
    return error_for(code, what, api="Metadata")


class Cluster:
    """Shared by all producers, consumers and admins of a Client. Connections run in `background` and end with it."""

    def __init__(
        self,
        config: ClientConfig,
        background: Background,
        random: Random,
        wall_clock: Callable[[], float] = time.time,
        dial: Dial = open_socket,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.config = config
        self.random = random
        self.wall_clock = wall_clock
        self._background = background
        self.policy = RetryPolicy(
            config.retry_backoff_ms, config.retry_backoff_max_ms, config.default_api_timeout_ms, random
        )
        self._connections = Connections(config, background, random, dial, tls, self.policy.warnings)
        self.brokers: dict[int, Address] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.names: dict[bytes, str] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._learned_at: dict[str, float] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._last_bootstrap = 0
        self._metadata_at: float | None = None
        self._wanted: dict[str, float] = {}
        self._refreshing = False

    def check_loop(self) -> None:
        """Raise RuntimeError where the caller runs in another event loop than the client."""
        self._background.check_loop()

    @property
    def request_timeout_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    # -- connections

    async def connection(self, node: int, purpose: str = "") -> Connection:
        """The connection to a broker by its id. Requests that may wait long at the broker have their own `purpose`.

        Raises ConnectionLostError(sent=False) when the broker cannot be reached or is not known (any more).
        """
        address = self.brokers.get(node)
        if address is None:
            await self.refresh()
            address = self.brokers.get(node)
            if address is None:
                raise ConnectionLostError(f"broker {node} is not part of the cluster now", sent=False, node=node)
        return await self._connections.get(address, node, purpose)

    def release(self, purpose: str) -> None:
        """Close the connections of one purpose, when its owner is done."""
        self._connections.release(purpose)

    def close(self) -> None:
        self._connections.close()

    async def any_connection(self) -> Connection:
        """A connection to any broker: an open one, a known broker, or a bootstrap server (KIP-899).

        Addresses that have just failed come last.
        """
        found = self._connections.find("")
        if found is not None:
            return found
        bootstrap = self.config.bootstrap_servers
        self._last_bootstrap += 1
        turned = [bootstrap[(self._last_bootstrap + i) % len(bootstrap)] for i in range(len(bootstrap))]
        known = [address for address in self.brokers.values() if address not in bootstrap]
        if self.brokers and self.config.metadata_recovery_strategy == "none":
            known, turned = list(self.brokers.values()), []
        now = anyio.current_time()
        addresses = sorted([*known, *turned], key=lambda address: self._connections.retry_at(address) > now)
        last: ConnectionLostError | None = None
        for address in addresses:
            try:
                return await self._connections.get(address, None, "")
            except ConnectionLostError as error:
                last = error
        raise last or ConnectionLostError("no broker is known", sent=False)

    def _bootstrap_again(self, reason: str) -> None:
        """Forget the known brokers, and connect to the bootstrap servers again (KIP-1102)."""
        if self.config.metadata_recovery_strategy == "none":
            return
        _LOG.warning("connecting to the bootstrap servers again: %s", reason)
        self.brokers.clear()
        self._coordinators.clear()
        self._connections.close(f"connecting to the bootstrap servers again: {reason}")
        self._metadata_at = anyio.current_time()

    async def ask(
        self,
        node: int | None,
        request: Request[R],
        *,
        purpose: str = "",
        at_most: int = 1 << 15,
        at_least: int = 0,
        timeout_s: float | None = None,
    ) -> R:
        """One request, one response, no retry. `node` None means any broker.

        Raises ConnectionLostError, or FatalError when there is no common version.
        """
        self._background.check_loop()
        connection = await (self.any_connection() if node is None else self.connection(node, purpose))
        version = connection.version_for(request.api_key, at_most=at_most, at_least=at_least)
        body = request.made(version) if isinstance(request, ByVersion) else request
        return await connection.ask(body, timeout_s or self.request_timeout_s, version=version)

    # -- topics

    async def refresh(self, topics: Iterable[str] | None = (), *, create: bool = False) -> dict[str, ErrorCode]:
        """Fetch metadata of `topics` (None: all, empty: only the brokers); returns the topics with an error.

        `create` lets the broker create missing topics, if it is configured to.
        """
        wanted = None if topics is None else list(topics)
        entries = None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted]
        request = MetadataRequest(topics=entries, allow_auto_topic_creation=create)
        try:
            response = await self.ask(None, request, at_least=1)
        except ConnectionLostError:
            self._give_up_on_brokers()
            raise
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._bootstrap_again("the broker reports that it belongs to another cluster now")
            raise RetriableError("fetching metadata failed", code=ErrorCode.REBOOTSTRAP_REQUIRED, api="Metadata")
        if response.error_code:
            raise error_for(code_of(response.error_code), "fetching metadata failed", api="Metadata")
        self._learn(response, everything=wanted is None)
        for name in wanted or ():
            self._want(name)
        return {topic.name or "": code_of(topic.error_code) for topic in response.topics if topic.error_code}

    def _give_up_on_brokers(self) -> None:
        """Bootstrap again if no known broker has returned metadata for too long (KIP-1102)."""
        now = anyio.current_time()
        if self._metadata_at is None:
            self._metadata_at = now
        trigger_s = self.config.metadata_recovery_rebootstrap_trigger_ms / 1000
        if self.brokers and now - self._metadata_at >= trigger_s:
            self._bootstrap_again(f"no metadata for {trigger_s:g} s")

    def _want(self, name: str) -> None:
        """A topic is in use: keep its metadata fresh."""
        self._wanted[name] = anyio.current_time()
        if not self._refreshing:
            self._refreshing = True
            self._background.start_soon(self._keep_fresh)

    async def _keep_fresh(self) -> None:
        """Refresh the metadata of topics in use before it is older than `metadata_max_age`; forget other topics."""
        backoff = self.policy.backoff()
        max_age_s, max_idle_s = self.config.metadata_max_age_ms / 1000, self.config.metadata_max_idle_ms / 1000
        while self._wanted:
            known = [self._learned_at[name] for name in self._wanted if name in self._learned_at]
            await anyio.sleep_until(min(known, default=anyio.current_time()) + max_age_s)
            now = anyio.current_time()
            for name in [name for name, used_at in self._wanted.items() if used_at + max_idle_s < now]:
                del self._wanted[name]
                self.forget_topic(name)
            old = [name for name in self._wanted if name in self._learned_at and self.is_stale(name)]
            try:
                if old:
                    used = dict(self._wanted)
                    await self.refresh(old)
                    self._wanted.update({name: used[name] for name in old if name in self._wanted})
                backoff.reset()
            except KafkaError as error:
                _LOG.info("metadata could not be refreshed, the client tries again: %s", error)
                await anyio.sleep(max(max_age_s / 10, backoff.next_delay()))
        self._refreshing = False

    def _learn(self, response: Any, *, everything: bool) -> None:
        self._metadata_at = anyio.current_time()
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._connections.keep(self.brokers.values())
        if everything:
            self.topics.clear()
            self.names.clear()
            self._learned_at.clear()
        now = anyio.current_time()
        for topic in response.topics:
            if topic.error_code:
                self.forget_topic(topic.name)
                continue
            partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
            old = self.topics.get(topic.name)
            if old is not None and old.topic_id != topic.topic_id:
                self.names.pop(old.topic_id, None)
            self.names[topic.topic_id] = topic.name
            self._learned_at[topic.name] = now
            received = tuple(
                PartitionInfo(p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes))
                for p in partitions
            )
            if old is not None and old.topic_id == topic.topic_id and any(topic.topic_id):
                received = newer_of(old.partitions, received)
            self.topics[topic.name] = TopicInfo(topic.name, topic.topic_id, received, topic.is_internal)

    async def topic(self, name: str, *, create: bool = True, deadline_ms: float | None = None) -> TopicInfo:
        """A topic's metadata, fetched if it is unknown or too old; waits until the topic exists.

        Raises RetriableError (UNKNOWN_TOPIC_OR_PARTITION) at the deadline, KafkaError for an invalid name, TypeError
        for a name that is no str.
        """
        known = self.topics.get(name)
        max_age_s = self.config.metadata_max_age_ms / 1000
        if known is not None and known.partitions and anyio.current_time() - self._learned_at[name] < max_age_s:
            return known
        check_topic_name(name)

        async def attempt() -> TopicInfo:
            failed = await self.refresh([name], create=create)
            if name in failed:
                raise topic_error(name, failed[name])
            found = self.topics.get(name)
            if found is None or not found.partitions:
                raise RetriableError(f"{name!r} has no partitions", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return found

        return await self.policy.run(attempt, deadline_ms=deadline_ms, what=f"looking for topic {name!r}")

    def forget_topic(self, name: str) -> None:
        """The topic was deleted: drop its metadata."""
        gone = self.topics.pop(name, None)
        self._learned_at.pop(name, None)
        if gone is not None:
            self.names.pop(gone.topic_id, None)

    def is_stale(self, name: str) -> bool:
        """Whether a topic's metadata is older than `metadata_max_age`, or missing."""
        learned = self._learned_at.get(name)
        # The same sum as in `_keep_fresh`: a rounded difference could make that wake up without end for no stale topic.
        return learned is None or anyio.current_time() >= learned + self.config.metadata_max_age_ms / 1000

    def leader(self, partition: TopicPartition) -> int:
        """The leader's id in the known metadata, or -1."""
        info = self._info(partition)
        if info is None:
            return NO_LEADER
        self._want(partition.topic)
        return info.leader

    async def leader_of(self, partition: TopicPartition) -> int:
        """The leader's id; refreshes the metadata once if it is unknown. Raises RetriableError, KafkaError."""
        if self.leader(partition) == NO_LEADER:
            failed = await self.refresh([partition.topic])
            code = failed.get(partition.topic)
            if code is not None:
                raise topic_error(partition.topic, code)
            found = self.topics.get(partition.topic)
            if found is not None and not 0 <= partition.partition < len(found.partitions):
                raise KafkaError(f"{partition} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader = self.leader(partition)
        if leader == NO_LEADER:
            raise RetriableError(f"{partition} has no leader", code=ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The leader's epoch in the known metadata, or -1 (also if the broker does not return it)."""
        info = self._info(partition)
        return -1 if info is None else info.leader_epoch

    def _info(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader_hint(self, partition: TopicPartition, leader: int, epoch: int, endpoints: Iterable[Any] = ()) -> bool:
        """A response named the partition's new leader and its address (KIP-951). Returns whether it is a newer one.

        `endpoints` have node_id, host and port. Only an epoch above the known one counts.
        """
        old = self._info(partition)
        if old is None or leader < 0 or epoch <= old.leader_epoch:
            return False
        for endpoint in endpoints:
            self.brokers[endpoint.node_id] = (endpoint.host, endpoint.port)
        if leader not in self.brokers:
            return False
        topic = self.topics[partition.topic]
        partitions = list(topic.partitions)
        partitions[partition.partition] = old._replace(leader=leader, leader_epoch=epoch)
        self.topics[partition.topic] = topic._replace(partitions=tuple(partitions))
        return True

    async def coordinator(self, kind: int, key: str) -> int:
        """The coordinator of a group (GROUP) or a transactional id (TRANSACTION). Raises the response's error."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        response = await self.ask(None, FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key]))
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            broker_message = found.error_message or None
            message = broker_message or f"finding the coordinator of {key!r} failed"
            raise error_for(code_of(found.error_code), message, api="FindCoordinator", broker_message=broker_message)
        self.brokers[found.node_id] = (found.host, found.port)  # newer than the known address
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, kind: int, key: str) -> None:
        """The coordinator has moved or is unreachable: find it again at the next request."""
        self._coordinators.pop((kind, key), None)

    async def ask_coordinator(
        self, kind: int, key: str, request: Request[R], code_in: Callable[[R], int], **more: Any
    ) -> R:
        """One request to a coordinator, no retry. `code_in` returns the error code of the response.

        A coordinator that moved or is lost is forgotten. The response is returned with any code, except those that
        mean "not here" or "not yet", which raise RetriableError.
        """
        node = await self.coordinator(kind, key)
        try:
            response = await self.ask(node, request, **more)
        except (
            ConnectionLostError,
            anyio.get_cancelled_exc_class(),
        ):  # a caller with a short timeout must not meet the dead host again
            self.forget_coordinator(kind, key)
            raise
        code = code_of(code_in(response))
        if code in LOST_COORDINATOR:
            self.forget_coordinator(kind, key)
        if code in LOST_COORDINATOR or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            api = API_BY_KEY[request.api_key].name
            raise RetriableError(f"the coordinator of {key!r} is not ready", code=code, api=api, node=node)
        return response
