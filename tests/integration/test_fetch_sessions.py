"""Fetch sessions over the wire (L13, KIP-227): a request names what changed, and a response has what changed."""

from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import FETCH, Wire, batch_of, values_in

PARTITIONS = 3


@pytest.fixture
def wide(wire: Wire, topic: str) -> str:
    """A topic of three partitions, with a record in each."""
    name = f"{topic}-wide"
    wire.create_topic(name, PARTITIONS)
    for number in range(PARTITIONS):
        wire.produce(name, batch_of(b"%d" % number), partition=number)
    return name


class Session:
    """A consumer's session, by names; `version` 7 to 12."""

    def __init__(self, wire: Wire, topic: str, version: int = 11) -> None:
        self.wire, self.topic, self.version = wire, topic, version
        self.session_id = self.epoch = 0

    def fetch(self, offsets: dict[int, int], forget: tuple[int, ...] = (), **fields: Any) -> FetchResponse:
        """Ask for partitions from offsets on; the next call continues the session."""
        asks = [
            FetchPartition(partition=number, fetch_offset=at, partition_max_bytes=1 << 20)
            for number, at in offsets.items()
        ]
        request = FetchRequest(
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=self.topic, partitions=asks)] if asks else [],
            forgotten_topics_data=[ForgottenTopic(topic=self.topic, partitions=list(forget))] if forget else [],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        response: FetchResponse = self.wire.call(FETCH, self.version, request)
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response


def told(response: FetchResponse) -> dict[int, list[bytes | None]]:
    """The records of each partition in a response."""
    assert response.error_code == ErrorCode.NONE
    return {part.partition_index: values_in(part) for topic in response.responses for part in topic.partitions}


@pytest.mark.parametrize("version", range(7, 13))
def test_a_response_within_a_session_has_what_changed(wire: Wire, wide: str, version: int) -> None:
    session = Session(wire, wide, version)
    assert told(session.fetch(dict.fromkeys(range(PARTITIONS), 0))) == {0: [b"0"], 1: [b"1"], 2: [b"2"]}
    assert session.session_id > 0
    assert told(session.fetch({0: 1, 1: 1, 2: 1})) == {}
    wire.produce(wide, batch_of(b"more"), partition=1)
    assert told(session.fetch({})) == {1: [b"more"]}
    assert told(session.fetch({}, forget=(1,))) == {}
    assert told(session.fetch({0: 0})) == {0: [b"0"]}


def test_ids_of_topics_are_sessions_of_their_own(wire: Wire, wide: str) -> None:
    """KIP-516: a session has names or ids, by the version of the request that began it."""
    metadata = wire.call(3, 12, MetadataRequest(topics=[MetadataRequestTopic(name=wide)]))
    asks = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in range(PARTITIONS)]
    topic_id = metadata.topics[0].topic_id
    request = FetchRequest(min_bytes=1, session_epoch=0, topics=[FetchTopic(topic_id=topic_id, partitions=asks)])
    for version in range(13, 19):
        request.session_id, request.session_epoch, request.topics[0].partitions = 0, 0, asks
        first = wire.call(FETCH, version, request)
        assert told(first) == {0: [b"0"], 1: [b"1"], 2: [b"2"]}
        request.session_id, request.session_epoch = first.session_id, 1
        assert wire.call(FETCH, 12, request).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        request.topics[0].partitions = [FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)]
        assert told(wire.call(FETCH, version, request)) == {1: [b"1"], 2: [b"2"]}


def test_each_refusal_has_its_code_and_leaves_the_session(wire: Wire, wide: str) -> None:
    """As `FetchManager.newContext`."""
    session = Session(wire, wide)
    session.fetch({0: 1})
    known = session.session_id
    assert session.fetch({}, session_epoch=5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session.fetch({}, session_id=known + 1, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert told(session.fetch({}, session_id=known, session_epoch=1)) == {}
    # A full request ends the session that it names, and epoch -1 begins no new one.
    ended = session.fetch({0: 0}, session_id=known, session_epoch=-1)
    assert (told(ended), ended.session_id) == ({0: [b"0"]}, 0)
    assert session.fetch({}, session_id=known, session_epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_lives_longer_than_its_connection(wire: Wire, wide: str, broker_of_module: BrokerProcess) -> None:
    session = Session(wire, wide)
    session.fetch({0: 0})
    with Wire(broker_of_module.connect()) as session.wire:
        assert told(session.fetch({0: 1, 1: 0})) == {1: [b"1"]}


def test_a_topic_that_is_deleted_and_made_again_is_told_as_an_error(wire: Wire, wide: str) -> None:
    """Errors are in every response until the client forgets the partition; the new topic's records come by its name."""
    session = Session(wire, wide)
    assert told(session.fetch({0: 0})) == {0: [b"0"]}
    assert wire.call(20, 3, DeleteTopicsRequest(topic_names=[wide])).responses[0].error_code == ErrorCode.NONE
    for _ in range(2):
        answer = session.fetch({}).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wire.create_topic(wide, PARTITIONS)
    wire.produce(wide, batch_of(b"new"))
    assert told(session.fetch({0: 0})) == {0: [b"new"]}


def test_a_fetch_within_a_session_waits_for_any_of_its_partitions(
    wire: Wire, wide: str, broker_of_module: BrokerProcess
) -> None:
    session = Session(wire, wide)
    session.fetch(dict.fromkeys(range(PARTITIONS), 1))
    request = FetchRequest(min_bytes=1, max_wait_ms=30_000, session_id=session.session_id, session_epoch=1)
    wire.send(FETCH, 11, request)
    with Wire(broker_of_module.connect()) as other:
        other.produce(wide, batch_of(b"late"), partition=2)
    assert told(wire.receive(FETCH, 11)[1]) == {2: [b"late"]}
