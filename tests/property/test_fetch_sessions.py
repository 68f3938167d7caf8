"""Fetch sessions of the client against the broker's rules (L13, KIP-227), as Kafka's FetchManager has them.

The broker here is a model of those rules, in the words of `FetchManager.newContext`, `FetchSession.update` and
`FetchContext.updateAndGenerateResponseData`, and then our broker's sessions; the client's machine is the real one.
Whatever is lost on the way, evicted or restarted: an answer that the client accepts is an answer to exactly what it
wanted.
"""

from dataclasses import dataclass, field
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from fencepost.broker.fetch.sessions import FetchSession as OurSession
from fencepost.broker.fetch.sessions import FetchSessions, SessionError
from fencepost.client.core.fetch_session import (
    FINAL_EPOCH,
    FULL_EPOCH,
    NO_SESSION,
    NO_TOPIC_ID,
    FetchSession,
    SessionRequest,
    Wanted,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from fencepost.protocol.topics import TopicPartition

pytestmark = pytest.mark.long

Key = tuple[str, bytes, int]


@dataclass
class Held:
    """One session of the model."""

    session_id: int
    epoch: int
    uses_ids: bool
    partitions: dict[Key, Wanted] = field(default_factory=dict)


@dataclass
class Answer:
    """What the model answers; `serves` is what it has fetched for."""

    code: ErrorCode
    session_id: int
    partitions: list[TopicPartition]
    serves: dict[Key, Wanted]


class ModelBroker:
    """Kafka's rules for sessions. `room` 0 is a broker which declines them."""

    def __init__(self, room: int, seed: int = 0) -> None:
        self.room = room
        self.sessions: dict[int, Held] = {}
        self.next_id = 1000 * seed + 1

    def fetch(self, request: SessionRequest, speaking: set[TopicPartition]) -> Answer:
        """`speaking`: the partitions which have something to say, of which alone an incremental answer tells."""
        if request.epoch in (FULL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self.sessions.pop(request.session_id, None)
            return self._full(request)
        held = self.sessions.get(request.session_id)
        if held is None:
            return self._refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if held.epoch != request.epoch:
            return self._refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if held.uses_ids != request.with_ids:
            return self._refuse(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for partition, wanted in request.named.items():
            held.partitions[key_of(request.with_ids, partition, wanted.topic_id)] = wanted
        for partition, topic_id in request.forgotten:
            held.partitions.pop(key_of(request.with_ids, partition, topic_id), None)
        serves = dict(held.partitions)
        if not serves:
            del self.sessions[held.session_id]
            return Answer(ErrorCode.NONE, NO_SESSION, [], serves)
        held.epoch = 1 if held.epoch == 2**31 - 1 else held.epoch + 1
        told = [partition for partition in map(named, serves) if partition in speaking]
        return Answer(ErrorCode.NONE, held.session_id, told, serves)

    def _full(self, request: SessionRequest) -> Answer:
        keys = {key_of(request.with_ids, p, wanted.topic_id): wanted for p, wanted in request.named.items()}
        session_id = NO_SESSION
        if request.epoch == FULL_EPOCH and keys and len(self.sessions) < self.room:
            session_id, self.next_id = self.next_id, self.next_id + 1
            self.sessions[session_id] = Held(session_id, 1, request.with_ids, dict(keys))
        return Answer(ErrorCode.NONE, session_id, list(map(named, keys)), keys)

    def _refuse(self, code: ErrorCode) -> Answer:
        return Answer(code, NO_SESSION, [], {})


TOPICS = ("a", "b")


def topic_id(topic: str, age: int) -> bytes:
    """A topic that is deleted and made again has another id."""
    return (topic.encode() + bytes([age])).ljust(16, b"\1")


def key_of(with_ids: bool, partition: TopicPartition, identity: bytes) -> Key:
    """A session knows a topic by its id or by its name, never by both."""
    return ("", identity, partition.partition) if with_ids else (partition.topic, b"", partition.partition)


def named(key: Key) -> TopicPartition:
    """The partition that a session's key means."""
    names = {topic_id(topic, age): topic for topic in TOPICS for age in range(3)}
    return TopicPartition(key[0] or names[key[1]], key[2])


partitions_of = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 3))


class OurBroker:
    """The sessions of our broker; `room` as for the model."""

    def __init__(self, room: int, seed: int = 0) -> None:
        self.held = FetchSessions(room, Random(seed).randbytes)

    @property
    def sessions(self) -> dict[int, OurSession]:
        return self.held._sessions

    def fetch(self, request: SessionRequest, speaking: set[TopicPartition]) -> Answer:
        """As the model."""
        version, asked = 13 if request.with_ids else 12, asked_by(request)
        try:
            session = self.held.continued(asked, version, 0)
        except SessionError as error:
            return Answer(error.code, NO_SESSION, [], {})
        response, serves = FetchResponse(), {}
        for topic in asked.topics if session is None else session.topics():
            told = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[])
            response.responses.append(told)
            for part in topic.partitions:
                key = key_in(topic, part.partition, request.with_ids)
                serves[key] = Wanted(
                    topic.topic_id, part.fetch_offset, part.current_leader_epoch, part.partition_max_bytes
                )
                records = b"x" if named(key) in speaking else None
                told.partitions.append(PartitionData(partition_index=part.partition, records=records))
        session = session or self.held.begun(asked, version, 0)
        if session is not None:
            response = session.answer(request.epoch, response)
        keys = [
            key_in(one, part.partition_index, request.with_ids) for one in response.responses for part in one.partitions
        ]
        return Answer(ErrorCode(response.error_code), response.session_id, list(map(named, keys)), serves)


def asked_by(request: SessionRequest) -> FetchRequest:
    """The request as the broker gets it."""
    asked = FetchRequest(session_id=request.session_id, session_epoch=request.epoch, topics=[])
    for tp, wanted in request.named.items():
        part = FetchPartition(partition=tp.partition, fetch_offset=wanted.fetch_offset)
        part.current_leader_epoch, part.partition_max_bytes = wanted.leader_epoch, wanted.max_bytes
        asked.topics.append(FetchTopic(topic=tp.topic, topic_id=wanted.topic_id, partitions=[part]))
    asked.forgotten_topics_data = [
        ForgottenTopic(topic=tp.topic, topic_id=identity, partitions=[tp.partition])
        for tp, identity in request.forgotten
    ]
    return asked


def key_in(topic: FetchTopic | FetchableTopicResponse, partition: int, with_ids: bool) -> Key:
    return key_of(with_ids, TopicPartition(topic.topic, partition), topic.topic_id)


def without_ids(serves: dict[Key, Wanted]) -> dict[Key, tuple[int, int, int]]:
    """A topic's id is part of the key where it is known to a broker."""
    return {key: wanted[1:] for key, wanted in serves.items()}


class SessionWorld(RuleBasedStateMachine):
    """One client, one broker, and everything that can go wrong between them."""

    kind: type[ModelBroker | OurBroker] = ModelBroker

    def __init__(self) -> None:
        super().__init__()
        self.broker = self.kind(1)
        self.client = FetchSession()
        self.ages = dict.fromkeys(TOPICS, 0)
        self.wanted: dict[TopicPartition, Wanted] = {}
        self.with_ids = True
        self.refused_in_a_row = self.restarts = 0

    @rule(partition=partitions_of, offset=st.integers(0, 5), epoch=st.integers(-1, 2))
    def want(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        self.wanted[partition] = Wanted(topic_id(partition.topic, self.ages[partition.topic]), offset, epoch, 100)

    @rule(partition=partitions_of)
    def want_no_more(self, partition: TopicPartition) -> None:
        self.wanted.pop(partition, None)

    @precondition(lambda self: max(self.ages.values()) < 2)
    @rule(data=st.data(), topic=st.sampled_from(TOPICS))
    def topic_is_made_again(self, data: st.DataObject, topic: str) -> None:
        self.fetch(data, "answered")
        self.ages[topic] += 1
        for partition, wanted in self.wanted.items():
            if partition.topic == topic:
                self.wanted[partition] = wanted._replace(topic_id=topic_id(topic, self.ages[topic]))
        self.fetch(data, "answered")

    @rule(dice=st.integers(0, 3))
    def broker_speaks_another_version(self, dice: int) -> None:
        if not dice:
            self.with_ids = not self.with_ids

    @rule(dice=st.integers(0, 3), room=st.integers(0, 2))
    def broker_restarts(self, dice: int, room: int) -> None:
        if dice:
            return
        self.restarts += 1
        self.broker = self.kind(room, self.restarts)  # ids are random: never one that was given before

    @rule(dice=st.integers(0, 3))
    def session_is_evicted(self, dice: int) -> None:
        if not dice:
            self.broker.sessions.clear()

    @rule(data=st.data(), times=st.integers(1, 3))
    def fetches(self, data: st.DataObject, times: int) -> None:
        for _ in range(times):
            self.fetch(data, data.draw(st.sampled_from([*["answered"] * 8, "request lost", "answer lost"])))

    def fetch(self, data: st.DataObject, fate: str) -> None:
        wanted = dict(self.wanted)
        request = self.client.ask(wanted, with_ids=self.with_ids)
        assert not (set(request.named) - set(wanted)), "only what is wanted is asked for"
        if fate == "request lost":
            self.client.lost()
            return
        speaking = {p for p in wanted if data.draw(st.booleans())}
        answer = self.broker.fetch(request, speaking)
        if fate == "answer lost":
            self.client.lost()
            return
        accepted = self.client.answered(answer.code, answer.session_id, answer.partitions)
        if accepted:
            assert answer.code is ErrorCode.NONE
            meant = {key_of(self.with_ids, p, entry.topic_id): entry for p, entry in wanted.items()}
            told = "the broker fetched what is wanted, no more, no less, from where it is"
            assert without_ids(answer.serves) == without_ids(meant), told
            self.refused_in_a_row = 0
        else:
            self.refused_in_a_row += 1

    @invariant()
    def a_refused_session_is_begun_anew_at_once(self) -> None:
        assert self.refused_in_a_row <= 1

    @rule(dice=st.integers(0, 3))
    def the_consumer_is_closed_and_opened(self, dice: int) -> None:
        if dice:
            return
        request = self.client.close()
        if request is not None:
            assert request.epoch == FINAL_EPOCH
            self.broker.fetch(request, set())
            assert request.session_id not in self.broker.sessions
        self.client = FetchSession()


class OurSessionWorld(SessionWorld):
    kind = OurBroker


@pytest.mark.parametrize("world", [SessionWorld, OurSessionWorld])
def test_what_is_accepted_is_what_was_wanted_whatever_goes_wrong(world: type[SessionWorld]) -> None:
    """L13"""
    run_state_machine_as_test(world, settings=settings(max_examples=200))  # type: ignore[no-untyped-call]


def asked(**offsets: int) -> dict[TopicPartition, Wanted]:
    return {TopicPartition(name[0], int(name[1:])): Wanted(NO_TOPIC_ID, at, -1, 100) for name, at in offsets.items()}


def answer(session: FetchSession, session_id: int, *names: str, code: ErrorCode = ErrorCode.NONE) -> bool:
    return session.answered(code, session_id, [TopicPartition(name[0], int(name[1:])) for name in names])


def test_only_what_changed_is_named_and_what_is_not_wanted_is_forgotten() -> None:
    """L13, KIP-227: incremental requests."""
    session = FetchSession()
    first = session.ask(asked(a0=0, a1=0, b0=7), with_ids=False)
    assert (first.session_id, first.epoch, len(first.named)) == (0, 0, 3)
    assert answer(session, 55, "a0", "a1", "b0")
    second = session.ask(asked(a0=10, a1=0), with_ids=False)
    assert (second.session_id, second.epoch) == (55, 1)
    assert {str(p): w.fetch_offset for p, w in second.named.items()} == {"a-0": 10}
    assert [str(p) for p, _ in second.forgotten] == ["b-0"]
    assert answer(session, 55, "a0")
    third = session.ask(asked(a0=10, a1=0), with_ids=False)
    assert (third.epoch, third.named, third.forgotten) == (2, {}, [])


def test_a_broker_that_declines_is_asked_in_full_for_ever() -> None:
    """KIP-227 allows a broker to answer session id 0."""
    session = FetchSession()
    for offset in range(3):
        request = session.ask(asked(a0=offset, a1=0), with_ids=False)
        assert (request.session_id, request.epoch, len(request.named)) == (0, 0, 2)
        assert answer(session, 0, "a0", "a1")
        assert not session.established


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    """As `FetchSessionHandler`: a replaced partition is named under the new id and forgotten under the old one."""
    session, partition = FetchSession(), TopicPartition("a", 0)
    session.ask({partition: Wanted(topic_id("a", 0), 9, -1, 100)}, with_ids=True)
    assert answer(session, 55, "a0")
    assert session.name_of(topic_id("a", 0)) == "a"
    request = session.ask({partition: Wanted(topic_id("a", 1), 0, -1, 100)}, with_ids=True)
    assert request.named == {partition: Wanted(topic_id("a", 1), 0, -1, 100)}
    assert request.forgotten == [(partition, topic_id("a", 0))]
    assert (session.name_of(topic_id("a", 0)), session.name_of(topic_id("a", 1))) == (None, "a")


def test_each_refusal_leads_to_a_full_request() -> None:
    """The old session is named so that the broker drops it, except where it says that there is none."""
    for code, named in [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 55),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 55),
    ]:
        session = FetchSession()
        session.ask(asked(a0=0), with_ids=False)
        assert answer(session, 55, "a0")
        session.ask(asked(a0=1), with_ids=False)
        assert not answer(session, 0, code=code)
        again = session.ask(asked(a0=1), with_ids=False)
        assert (again.session_id, again.epoch, len(again.named)) == (named, 0, 1)


def test_an_epoch_begins_again_behind_the_largest() -> None:
    """As `FetchMetadata.nextEpoch`: 1 follows 2**31 - 1, since 0 would be a full request."""
    session = FetchSession()
    session.ask(asked(a0=0), with_ids=False)
    assert answer(session, 55, "a0")
    session._epoch = 2**31 - 1
    assert session.ask(asked(a0=1), with_ids=False).epoch == 2**31 - 1
    assert answer(session, 55, "a0")
    assert session.ask(asked(a0=2), with_ids=False).epoch == 1


@given(st.lists(st.sampled_from(["a0", "a1", "b0", "b3"]), unique=True))
def test_a_full_answer_that_leaves_something_out_ends_the_session(names: list[str]) -> None:
    """As `FetchSessionHandler.verifyFullFetchResponsePartitions`."""
    session = FetchSession()
    session.ask(asked(a0=0, a1=0), with_ids=False)
    assert answer(session, 55, *names)
    assert session.established == (sorted(names) == ["a0", "a1"])
