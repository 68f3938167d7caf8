"""The states of share partitions where several brokers keep them: each is asked of the broker that owns it.

Kafka's PersisterStateManager does the same with the same requests (KIP-932). It also asks its own broker over the
network; here that is a call.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from fencepost.broker.peers.forwarding import PATIENCE_SECONDS, RETRY_SECONDS
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.peers.share_state_requests import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARIZE,
    WRITE,
    Call,
    in_transaction,
    replaced,
)
from fencepost.broker.place import Place
from fencepost.broker.ports import Broker
from fencepost.broker.share.joining import write_in_transaction
from fencepost.coordinator.ports import ProducerTag, TopicView
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.values import (
    UNINITIALIZED,
    InitialState,
    Outcome,
    ShareKey,
    StateSummary,
    StateUpdate,
    StoredState,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition

if TYPE_CHECKING:
    from fencepost.coordinator.share.service import ShareStates

ANSWER_SECONDS = 3.0
"""After this time the owner is looked up again: it may be paused, and another broker has taken over."""
INFORM_SECONDS = 1.0
"""How long an answer waits for leaders that have to forget a state; they learn of it in any case."""
FIND_VERSION, SHARE = 6, 2
_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors after which Kafka's PersisterStateManager asks again."""

AskedT = TypeVar("AskedT")
FoundT = TypeVar("FoundT", bound="HasError")

logger = logging.getLogger(__name__)


class HasError(Protocol):
    """What is found of a share partition."""

    @property
    def error(self) -> ErrorCode: ...


class RemoteShareStates:
    """A `SharePersister`. Every request may be executed twice; each changes nothing the second time.

    What fails for PATIENCE_SECONDS is COORDINATOR_NOT_AVAILABLE, or the owner's last error.
    """

    def __init__(self, place: Place, node: Broker, catch_up: Callable[[], Awaitable[None]]) -> None:
        """`catch_up` reads the newest metadata."""
        self._place = place
        self._node = node
        self._own: ShareStates = node.share_states
        self._topics: TopicView = node.metadata
        self._catch_up = catch_up

    async def initialize(self, states: Mapping[ShareKey, InitialState]) -> dict[ShareKey, Outcome]:
        """Begin share partitions, or begin them again at a higher state epoch: then their leaders begin anew, too."""
        found = await self._all(states, INITIALIZE, self._own.initialize)
        await self._inform([key for key, wanted in states.items() if wanted.start_offset != UNINITIALIZED])
        return found

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state of a share partition for its leader; older leaders are fenced from then on."""
        return (await self._all({key: leader_epoch}, READ, self._own.read_all))[key]

    async def write(self, updates: Sequence[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        """Store what changed. Those of one share partition are stored as one, because an answer has one result for it.

        Refused with FENCED_STATE_EPOCH or FENCED_LEADER_EPOCH if another leader began since.
        """

        async def own(some: Mapping[ShareKey, StateUpdate]) -> dict[ShareKey, Outcome]:
            return dict(zip(some, await self._own.write(list(some.items())), strict=True))

        found = await self._all(merged(updates), WRITE, own)
        return [found[key] for key, _ in updates]

    async def write_in(
        self, transactional_id: str, producer: ProducerTag, updates: Mapping[ShareKey, StateUpdate]
    ) -> dict[ShareKey, Outcome]:
        """Store what becomes of records if the producer's transaction commits, which the states join by themselves."""
        own = partial(write_in_transaction, self._node, transactional_id, producer)
        return await self._all(updates, in_transaction(transactional_id, producer), own)

    async def summaries(self, keys: Mapping[ShareKey, int]) -> dict[ShareKey, StateSummary]:
        """The summary of each; the values are leader epochs, and any will do."""
        return await self._all(keys, SUMMARIZE, self._own.summaries)

    async def delete(self, keys: Iterable[ShareKey]) -> dict[ShareKey, Outcome]:
        """Forget share partitions, also on their leaders; one that is not there is no error."""
        found = await self._all(dict.fromkeys(keys), DELETE, self._own.delete)
        await self._inform(found)
        return found

    async def _inform(self, keys: Iterable[ShareKey]) -> None:
        """Let the leaders of these partitions forget the states before, so that they deliver nothing by them any more.

        A leader that does not learn of it is refused when it writes next: FENCED_STATE_EPOCH.
        """
        leaders: dict[tuple[int | None, str], list[ShareKey]] = {}
        for key in keys:
            leader = self._place.leader(key.topic_id, key.partition).leader
            leaders.setdefault((leader, key.group_id), []).append(key)
        with trio.move_on_after(INFORM_SECONDS):
            async with trio.open_nursery() as nursery:
                for (leader, group_id), some in leaders.items():
                    if leader == self._place.node_id:
                        for key in some:
                            self._node.shares.forget(key)
                    elif leader is not None:
                        nursery.start_soon(self._inform_one, leader, group_id, some)

    async def _inform_one(self, leader: int, group_id: str, keys: Iterable[ShareKey]) -> None:
        try:
            await self._place.links.ask(leader, replaced(group_id, keys), SUMMARIZE.version)
        except PeerUnavailable as error:
            logger.debug("broker %d learns later that states of share group %s are new: %s", leader, group_id, error)

    async def _all(
        self,
        asked: Mapping[ShareKey, AskedT],
        call: Call[AskedT, FoundT],
        own: Callable[[Mapping[ShareKey, AskedT]], Awaitable[Mapping[ShareKey, FoundT]]],
    ) -> dict[ShareKey, FoundT]:
        """Ask the owners until each has decided, or the time is over."""
        until = trio.current_time() + PATIENCE_SECONDS
        found: dict[ShareKey, FoundT] = {}
        left = dict(asked)
        while left:
            problem = await self._problem(next(iter(left)))
            if problem is not None:
                found |= dict.fromkeys(left, call.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem))
            else:
                async with trio.open_nursery() as nursery:
                    for (owner, group_id), keys in self._owners(left).items():
                        some = {key: left[key] for key in keys}
                        if owner == self._place.node_id:
                            nursery.start_soon(self._ask_own, some, own, found)
                        else:
                            nursery.start_soon(self._ask, owner, group_id, some, call, found)
            left = {key: value for key, value in left.items() if self._is_open(key, found[key].error)}
            if left and trio.current_time() > until:
                break
            if left:
                await trio.sleep(RETRY_SECONDS)
        return {key: found[key] for key in asked}

    def _is_open(self, key: ShareKey, error: ErrorCode) -> bool:
        """Whether to ask again: the owner is unknown, loads, or has not read yet of a topic that this broker knows."""
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic = self._topics.topic_name(key.topic_id)
            return topic is not None and self._topics.exists(TopicPartition(topic, key.partition))
        return error in _AGAIN

    def _owners(self, keys: Iterable[ShareKey]) -> dict[tuple[int | None, str], list[ShareKey]]:
        """The share partitions by owner and group; the owner is None while it is not known."""
        topic_id = self._topics.topic_id(SHARE_STATE_TOPIC)
        assert topic_id is not None, "the topic was made before"
        found: dict[tuple[int | None, str], list[ShareKey]] = {}
        for key in keys:
            partition, place = self._own.runtime.partition_for(key_text(key)), self._place
            owner = place.leader(topic_id, partition).leader
            if owner == place.node_id and not (place.leads and place.leads_partition(topic_id, partition)):
                owner = None  # it loads the slot, or its lease has ended
            found.setdefault((owner, key.group_id), []).append(key)
        return found

    async def _ask_own(
        self,
        asked: Mapping[ShareKey, AskedT],
        own: Callable[[Mapping[ShareKey, AskedT]], Awaitable[Mapping[ShareKey, FoundT]]],
        found: dict[ShareKey, FoundT],
    ) -> None:
        found |= await own(asked)

    async def _ask(
        self,
        owner: int | None,
        group_id: str,
        asked: Mapping[ShareKey, AskedT],
        call: Call[AskedT, FoundT],
        found: dict[ShareKey, FoundT],
    ) -> None:
        """Add what the owner answers."""
        problem = f"no broker owns its partition of {SHARE_STATE_TOPIC} now"
        if owner is not None:
            problem = f"broker {owner} has not answered within {ANSWER_SECONDS:g} s"
            with trio.move_on_after(ANSWER_SECONDS):
                try:
                    answer = await self._place.links.ask(owner, call.request(group_id, asked), call.version)
                    await self._place.note_position()
                except PeerUnavailable as error:
                    problem = str(error)
                else:
                    answered = call.found(group_id, answer)
                    missing = call.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {owner} answers without it")
                    found |= {key: answered.get(key, missing) for key in asked}
                    return
        logger.debug("the states of share group %s are asked for again: %s", group_id, problem)
        found |= dict.fromkeys(asked, call.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem))

    async def _problem(self, key: ShareKey) -> str | None:
        """Why no state can be asked for now; None if all can.

        The controller creates the topic, at the first look for a coordinator (KafkaApis).
        """
        if self._topics.topic_id(SHARE_STATE_TOPIC) is not None:
            return None
        place = self._place
        if place.is_controller:
            return await self._own.problem()
        if place.controller_id in (None, place.node_id):
            return f"the cluster has no controller now that creates {SHARE_STATE_TOPIC}"
        request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key_text(key)])
        try:
            await place.links.ask(place.controller_id, request, FIND_VERSION)
        except PeerUnavailable as error:
            return str(error)
        await self._catch_up()
        made = self._topics.topic_id(SHARE_STATE_TOPIC) is not None
        return None if made else f"broker {place.controller_id} has not created {SHARE_STATE_TOPIC}"


def merged(updates: Iterable[tuple[ShareKey, StateUpdate]]) -> dict[ShareKey, StateUpdate]:
    """One update for each share partition: the newest one, with the batches of all. `combine` needs no order."""
    found: dict[ShareKey, StateUpdate] = {}
    for key, update in updates:
        before = found.get(key)
        found[key] = update if before is None else update._replace(batches=(*before.batches, *update.batches))
    return found
