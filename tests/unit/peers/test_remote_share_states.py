"""States of share partitions that several brokers keep: what is asked of which, and when again (KIP-932)."""

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.peers.forwarding import PATIENCE_SECONDS
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.peers.remote_share_states import INFORM_SECONDS, RemoteShareStates
from fencepost.broker.place import Alone, LeaderAndEpoch
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.values import (
    UNINITIALIZED,
    InitialState,
    PendingBatch,
    ShareKey,
    StateBatch,
    StoredState,
)
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorResponse
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition
from tests.unit.share.kit import TOPIC_ID, World, update

OWN, OTHER = 1, 2
HANDLERS = {
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    1093: "txn_share_acknowledge",
}


class Cluster(Alone):
    """Two brokers, each with states of its own; what is asked of the other one goes through the bytes of requests."""

    def __init__(self) -> None:
        super().__init__(load_config())
        assert self.node_id == OWN
        self.own, self.other = World(), World()
        self.links = self
        self.owner_of: Callable[[int], int | None] = lambda partition: partition % 2 + 1
        self.controller = OWN
        self.asked: Counter[int] = Counter()
        """Requests to the other broker, by API key."""
        self.trouble: Callable[[], None] = lambda: None
        """Called before the other broker executes a request; and `answered`, before its answer arrives."""
        self.answered: Callable[[], None] = lambda: None
        self.positions = self.catch_ups = 0
        self.refusal = ErrorCode.NONE
        self.partition_leader: int | None = OWN
        """Of what share groups read."""
        self.forgotten: list[ShareKey] = []
        """What this broker forgot as a leader; and the other one."""
        self.other_forgot: list[ShareKey] = []
        self.paused = False

    async def start(self) -> RemoteShareStates:
        for world in (self.own, self.other):
            await world.start()
            world.topics.add(SHARE_STATE_TOPIC, bytes(16), 50)
        return self.states()

    def states(self) -> RemoteShareStates:
        node: Any = SimpleNamespace(
            share_states=self.own.service,
            metadata=self.own.topics,
            shares=SimpleNamespace(forget=self.forgotten.append),
            transactions=SimpleNamespace(is_remote=lambda name: False, ensure_partitions=self.ensure),
        )
        return RemoteShareStates(self, node, self.catch_up)

    def key(self, owner: int | None, group: str = "g") -> ShareKey:
        """A share partition of that owner."""
        keys = (ShareKey(f"{group}{number}", TOPIC_ID, 0) for number in range(1000))
        return next(
            key for key in keys if self.owner_of(self.own.service.runtime.partition_for(key_text(key))) == owner
        )

    @property
    def is_controller(self) -> bool:
        return self.controller == OWN

    @property
    def controller_id(self) -> int | None:
        return self.controller

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.partition_leader if topic_id == TOPIC_ID else self.owner_of(partition), 1)

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        return self.owner_of(partition) == OWN

    async def ensure(self, *words: Any, add: bool, caller: None) -> dict[TopicPartition, ErrorCode]:
        """The transaction's coordinator."""
        *producer, states = words
        assert (producer, add) == (["txn", 7, 3], True)
        return dict.fromkeys(states, self.refusal)

    async def note_position(self) -> None:
        self.positions += 1

    async def catch_up(self) -> None:
        self.catch_ups += 1
        self.own.topics.image = self.other.topics.image

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        assert broker == OTHER
        key = request.api_key
        self.asked[key] += 1
        if self.paused:
            await trio.sleep_forever()
        self.trouble()
        api = API_BY_KEY[key]
        asked = api.request.decode(api.request.encode(request, version), version)
        if key == ApiKey.FIND_COORDINATOR:
            await self.other.service.problem()
            return FindCoordinatorResponse()
        handle = import_module(f"fencepost.broker.handlers.api{key}_{HANDLERS[key]}").handle
        node = SimpleNamespace(
            share_states=self.other.service,
            shares=SimpleNamespace(forget=self.other_forgot.append),
            transactions=SimpleNamespace(is_remote=lambda name: False, ensure_partitions=self.ensure),
            authorizer=None,
            config=load_config(),
        )
        session = SimpleNamespace(client_host="127.0.0.1", principal=None)
        answer = await handle(node, asked, SimpleNamespace(session=session))
        self.answered()
        return api.response.decode(api.response.encode(answer, version), version)


def once(trouble: BaseException) -> Callable[[], None]:
    """Raise it the first time."""
    left = [trouble]

    def act() -> None:
        if left:
            raise left.pop()

    return act


async def test_each_state_is_kept_by_the_owner_of_its_partition_of_the_topic() -> None:
    """PersisterStateManager: the share coordinator of a key is the leader of the partition that its hash chooses."""
    cluster = Cluster()
    states = await cluster.start()
    own, other = cluster.key(OWN), cluster.key(OTHER)
    begun = await states.initialize(dict.fromkeys((own, other), InitialState(1, 100)))
    assert list(begun) == [own, other]
    assert {one.error for one in begun.values()} == {ErrorCode.NONE}
    assert (len(cluster.own.service), len(cluster.other.service)) == (1, 1)
    for key in (own, other):
        assert await states.write([(key, update(100, (100, 109, 2, 1), complete=10))]) == [begun[key]]
        assert await states.read(key, 4) == StoredState(
            state_epoch=1, start_offset=100, batches=(StateBatch(100, 109, 2, 1),)
        )
        [summary] = (await states.summaries({key: -1})).values()
        assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (1, 4, 100)
        assert summary.delivery_complete_count == 10
    assert {one.error for one in (await states.delete([own, other])).values()} == {ErrorCode.NONE}
    assert (len(cluster.own.service), len(cluster.other.service)) == (0, 0)
    assert cluster.asked == Counter({83: 1, 84: 1, 85: 1, 86: 1, 87: 1})
    assert cluster.positions == 5


async def test_an_older_leader_is_fenced_wherever_the_state_is() -> None:
    """ShareCoordinatorShard.maybeGetWriteStateError: FENCED_LEADER_EPOCH, once a newer leader has read."""
    cluster = Cluster()
    states = await cluster.start()
    for key in (cluster.key(OWN), cluster.key(OTHER)):
        await states.initialize({key: InitialState(1, 0)})
        await states.read(key, 7)
        [outcome] = await states.write([(key, update(0, (0, 9, 2, 1), leader_epoch=6))])
        assert outcome.error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("leader", [OWN, OTHER, None])
async def test_the_leader_forgets_a_state_that_is_replaced(leader: int | None) -> None:
    """Kafka's leader learns of a reset or a deletion when it writes next (SharePartition, FENCED_STATE_EPOCH)."""
    cluster = Cluster()
    states = await cluster.start()
    cluster.partition_leader = leader
    keys = [cluster.key(OWN), cluster.key(OTHER)]
    await states.initialize(dict.fromkeys(keys, InitialState(1, UNINITIALIZED)))
    assert cluster.forgotten == cluster.other_forgot == [], "no leader knows a group that begins"
    await states.initialize(dict.fromkeys(keys, InitialState(2, 5)))
    await states.delete(keys)
    assert cluster.forgotten == (keys * 2 if leader == OWN else [])
    assert sorted(cluster.other_forgot) == sorted(keys * 2 if leader == OTHER else [])


@pytest.mark.parametrize("paused", [False, True])
async def test_a_leader_that_does_not_answer_holds_nothing_up(autojump_clock: trio.abc.Clock, paused: bool) -> None:
    """It learns of it by FENCED_STATE_EPOCH, as in Kafka, or another broker leads."""
    cluster = Cluster()
    states = await cluster.start()
    key = cluster.key(OWN)
    cluster.partition_leader, cluster.paused = OTHER, paused
    cluster.trouble = once(PeerUnavailable("broken"))
    assert (await states.initialize({key: InitialState(2, 5)}))[key].error is ErrorCode.NONE
    assert trio.current_time() <= INFORM_SECONDS
    assert cluster.other_forgot == []


async def test_the_owner_has_states_join_a_transaction_and_the_leader_reads_whose_they_are(
    autojump_clock: trio.abc.Clock,
) -> None:
    """As TxnOffsetCommit v5 (KIP-890): the broker that keeps the state adds its partition to the transaction."""
    cluster = Cluster()
    states = await cluster.start()
    keys = [cluster.key(OWN), cluster.key(OTHER)]
    await states.initialize(dict.fromkeys(keys, InitialState(1, 0)))
    updates = {key: update(0, (0, 9, 2, 1)) for key in keys}
    for _ in range(2):  # an answer that is lost, and the request again
        found = await states.write_in("txn", ProducerTag(7, 3), updates)
        assert {one.error for one in found.values()} == {ErrorCode.NONE}
        cluster.answered = once(PeerUnavailable("broken"))
    for key in keys:
        found_state = await states.read(key, 0)
        assert found_state.batches == (StateBatch(0, 9, 5, 1),)
        assert set(found_state.pending) == {PendingBatch(7, StateBatch(0, 9, 2, 1))}
    cluster.refusal = ErrorCode.INVALID_PRODUCER_EPOCH
    found = await states.write_in("txn", ProducerTag(7, 3), updates)
    assert {one.error for one in found.values()} == {ErrorCode.INVALID_PRODUCER_EPOCH}


async def test_updates_of_one_share_partition_are_one_request() -> None:
    """An answer of WriteShareGroupState has one result for a partition."""
    cluster = Cluster()
    states = await cluster.start()
    for key in (cluster.key(OWN), cluster.key(OTHER)):
        await states.initialize({key: InitialState(1, 0)})
        changes = [update(0, (5, 9, 0, 1)), update(3, (0, 2, 2, 1), complete=2), update(3, (5, 9, 2, 2), complete=7)]
        assert [one.error for one in await states.write([(key, one) for one in changes])] == [ErrorCode.NONE] * 3
        assert (await states.read(key, 0)).batches == (StateBatch(5, 9, 2, 2),)
        [summary] = (await states.summaries({key: 0})).values()
        assert (summary.start_offset, summary.delivery_complete_count) == (3, 7)
    assert cluster.asked[ApiKey.WRITE_SHARE_GROUP_STATE] == 1


@pytest.mark.parametrize("late", [False, True])
async def test_a_broken_link_is_tried_again(autojump_clock: trio.abc.Clock, late: bool) -> None:
    """PersisterStateManager.checkNetworkError; a write whose answer was lost changes nothing the second time."""
    cluster = Cluster()
    states = await cluster.start()
    key = cluster.key(OTHER)
    await states.initialize({key: InitialState(1, 0)})
    trouble = once(PeerUnavailable("broken"))
    if late:
        cluster.answered = trouble
    else:
        cluster.trouble = trouble
    assert [one.error for one in await states.write([(key, update(0, (0, 9, 2, 1)))])] == [ErrorCode.NONE]
    assert cluster.asked[ApiKey.WRITE_SHARE_GROUP_STATE] == 2
    assert (await states.read(key, 0)).batches == (StateBatch(0, 9, 2, 1),)


async def test_a_state_whose_owner_moves_is_asked_for_there(autojump_clock: trio.abc.Clock) -> None:
    """NOT_COORDINATOR, no owner, an owner that loads: asked again, until there is one that answers."""
    cluster = Cluster()
    states = await cluster.start()
    key = cluster.key(OTHER)
    partition = cluster.own.service.runtime.partition_for(key_text(key))
    cluster.other.service.runtime.unload(partition)
    owners: list[int | None] = [OTHER, None, OWN]
    cluster.owner_of = lambda number: owners[0]
    cluster.own.service.runtime.unload(partition)

    async def move() -> None:
        for _ in range(2):
            await trio.sleep(1)
            owners.pop(0)
        await trio.sleep(1)
        cluster.own.service.runtime.allow(partition)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(move)
        began = trio.current_time()
        begun = await states.initialize({key: InitialState(1, 0)})
    assert begun[key].error is ErrorCode.NONE
    assert 3 <= trio.current_time() - began < 3.2
    assert len(cluster.own.service) == 1


async def test_an_owner_that_does_not_answer_is_looked_up_again(autojump_clock: trio.abc.Clock) -> None:
    """A paused broker keeps its connections; meanwhile another one takes over."""
    cluster = Cluster()
    states = await cluster.start()
    key = cluster.key(OTHER)
    cluster.paused = True

    async def take_over() -> None:
        await trio.sleep(1)
        cluster.owner_of = lambda number: OWN

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        assert (await states.initialize({key: InitialState(1, 0)}))[key].error is ErrorCode.NONE
    assert len(cluster.own.service) == 1


async def test_the_patience_has_an_end(autojump_clock: trio.abc.Clock) -> None:
    """PersisterStateManager's backoff has a maximum, too. The others of the request are answered."""
    cluster = Cluster()
    states = await cluster.start()
    own, other = cluster.key(OWN), cluster.key(OTHER)

    def fail() -> None:
        raise PeerUnavailable("broker 2 does not answer")

    cluster.trouble = fail
    began = trio.current_time()
    begun = await states.initialize(dict.fromkeys((own, other), InitialState(1, 0)))
    assert begun[own].error is ErrorCode.NONE
    assert begun[other] == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "broker 2 does not answer")
    assert PATIENCE_SECONDS <= trio.current_time() - began < PATIENCE_SECONDS + 1


async def test_a_topic_that_the_owner_has_not_read_of_yet(autojump_clock: trio.abc.Clock) -> None:
    """Brokers follow the metadata each at its own pace, so what this broker knows is asked again."""
    cluster = Cluster()
    states = await cluster.start()
    key = cluster.key(OTHER)
    cluster.other.topics.remove(TOPIC_ID)

    async def follow() -> None:
        await trio.sleep(0.25)
        cluster.other.topics.add("t", TOPIC_ID)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        assert (await states.initialize({key: InitialState(1, 0)}))[key].error is ErrorCode.NONE
    gone = key._replace(topic_id=bytes(range(3, 19)))
    began = trio.current_time()
    assert (await states.initialize({gone: InitialState(1, 0)}))[gone].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert trio.current_time() == began


async def test_the_controller_makes_the_topic() -> None:
    """KafkaApis.handleFindCoordinatorRequest: `__share_group_state` is made when a coordinator is looked for first."""
    cluster = Cluster()
    for world in (cluster.own, cluster.other):
        await world.start()
    cluster.controller = OTHER
    states = cluster.states()
    key = ShareKey("g", TOPIC_ID, 0)
    assert (await states.initialize({key: InitialState(1, 0)}))[key].error is ErrorCode.NONE
    assert cluster.asked[ApiKey.FIND_COORDINATOR] == cluster.catch_ups == 1
    assert [one.name for one in cluster.other.topics.created] == [SHARE_STATE_TOPIC]
    assert cluster.own.topics.created == []
