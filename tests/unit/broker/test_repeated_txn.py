"""The short way for requests of TV1 gives the answers of the general way, and steps aside where it must."""

from types import CoroutineType
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.network.answers import Answer, answer_of
from fencepost.broker.network.context import Endpoint, RequestContext
from fencepost.broker.network.repeated_txn import FRAME_BYTES_MAX, KNOWN_MAX, RepeatedTxn
from fencepost.broker.node import Node
from fencepost.coordinator.metadata.commands import NewTopic, TopicRef
from fencepost.protocol.headers import read_request_header, write_request_header
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.registry import API_BY_KEY
from tests.unit.broker.test_repeated_produce import Clock, entropy, stop

ADD, END = 24, 26
TV1 = [(add, end) for add in range(4) for end in range(5) if add == 0 or end == 1]


async def started(nursery: trio.Nursery) -> Node:
    """A broker in memory with the topic t of two partitions."""
    flags = {"storage": "memory", "listeners": "PLAINTEXT://127.0.0.1:0", "durability": "os"}
    node = Node(load_config(flags=flags), Clock(), entropy())
    await nursery.start(node.run)
    await node.metadata.create_topics([NewTopic("t", 2)])
    return node


def frame(api_key: int, version: int, request: Any, correlation_id: int) -> memoryview:
    api = API_BY_KEY[api_key]
    head = write_request_header(api, version, correlation_id, "client")
    return memoryview(bytearray(head + api.request.encode(request, version)))


def add(version: int, held: tuple[int, int], correlation_id: int = 1, name: str = "x") -> memoryview:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[1, 0])]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=held[0],
            v3_and_below_producer_epoch=held[1],
            v3_and_below_topics=topics,
        )
    else:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=held[0], producer_epoch=held[1], verify_only=False, topics=topics
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
    return frame(ADD, version, request, correlation_id)


def end(version: int, held: tuple[int, int], correlation_id: int = 2, *, commit: bool = True) -> memoryview:
    request = EndTxnRequest(transactional_id="x", producer_id=held[0], producer_epoch=held[1], committed=commit)
    return frame(END, version, request, correlation_id)


async def in_general(node: Node, asked: memoryview, short: RepeatedTxn | None = None) -> bytes:
    """The answer of the general way, which `short` learns from."""
    header = read_request_header(asked)
    api = API_BY_KEY[header.api_key]
    request, _ = api.request.decode_prefix(asked, header.api_version, header.body_start)
    context = RequestContext(
        header.api_key, header.api_version, header.correlation_id, "client", "127.0.0.1", Endpoint("h", 1)
    )
    reply = node.dispatch.route(header.api_key, header.api_version).handle(node, request, context)
    if isinstance(reply, CoroutineType):
        reply = await reply
    if short is not None:
        short.learn(asked, request, context)
    return b"".join(answer_of(api, header.api_version, header.correlation_id, reply).parts)


async def the_short_way(short: RepeatedTxn, asked: memoryview, *, waits: bool | None = None) -> bytes:
    soon = short.answer(asked)
    assert soon is not None, "the request is known"
    answer = soon if isinstance(soon, Answer) else await soon
    assert waits in (None, answer is not soon)
    data = b"".join(answer.parts)
    assert answer.size_bytes == len(data) == int.from_bytes(data[:4], "big") + 4
    return data


async def held(node: Node, name: str = "x") -> tuple[int, int]:
    answer = await node.transactions.init_producer_id(name, 60_000)
    return answer.producer_id, answer.epoch


def logged(node: Node) -> list[Any]:
    """What the coordinator's log has of the id."""
    node.transactions.store.catch_up()
    return [batch.records for batch in node.transactions.store.shard_of("x").log.replay()]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("add_version", "end_version"), TV1)
async def test_answers_and_records_are_those_of_the_general_way(
    nursery: trio.Nursery, add_version: int, end_version: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows T3 and T7, whether or not markers have to be waited for."""
    general, special = await started(nursery), await started(nursery)
    short = RepeatedTxn(special)
    identity = await held(general)
    assert identity == await held(special)
    for asked in (add(add_version, identity), end(end_version, identity)):
        assert await in_general(special, asked, short) == await in_general(general, asked)
    if waits:
        for node in (general, special):
            monkeypatch.setattr(node.markers, "write_at_once", lambda *_: None)
    for number in (7, -8, 9):
        asked = add(add_version, identity, number)
        assert await the_short_way(short, asked) == await in_general(general, asked)
        asked = end(end_version, identity, 2 * number)
        assert await the_short_way(short, asked, waits=waits) == await in_general(general, asked)
    assert logged(special) == logged(general)
    assert special.metrics.markers_written == general.metrics.markers_written == 8
    assert special.metrics.requests == {ADD: 3, END: 3}
    stop(nursery, general, special)


@pytest.mark.parametrize(("add_version", "end_version"), TV1)
async def test_what_is_refused_is_refused_in_the_same_words(
    nursery: trio.Nursery, add_version: int, end_version: int
) -> None:
    """Row T11: a newcomer has fenced the producer whose requests are known."""
    general, special = await started(nursery), await started(nursery)
    short = RepeatedTxn(special)
    identity = await held(general)
    assert identity == await held(special)
    for asked in (add(add_version, identity), end(end_version, identity)):
        assert await in_general(special, asked, short) == await in_general(general, asked)
    again = end(end_version, identity, 3)
    assert await the_short_way(short, again) == await in_general(general, again), "TV1: its retry has the same answer"
    assert await held(general) == await held(special)
    for asked in (add(add_version, identity, 4), end(end_version, identity, 5)):
        assert await the_short_way(short, asked) == await in_general(general, asked)
    assert [refusal.cause.reason for refusal in special.transactions.history.of("x").refusals] == [  # type: ignore[union-attr]
        refusal.cause.reason
        for refusal in general.transactions.history.of("x").refusals  # type: ignore[union-attr]
    ]
    stop(nursery, general, special)


async def test_by_other_metadata_it_is_asked_anew(nursery: trio.Nursery) -> None:
    """Row T3: a partition may be gone."""
    node = await started(nursery)
    short, identity = RepeatedTxn(node), await held(node)
    await in_general(node, add(0, identity), short)
    assert await the_short_way(short, add(0, identity))
    await node.metadata.delete_topics([TopicRef("t")])
    assert short.answer(add(0, identity)) is None
    refused = await in_general(node, add(0, identity), short)
    assert short.answer(add(0, identity)) is None, "what is not there is not learnt"
    assert refused[-2:] == b"\0\3"
    stop(nursery, node)


async def test_requests_of_the_second_protocol_and_large_ones_are_not_kept(nursery: trio.Nursery) -> None:
    node = await started(nursery)
    short, identity = RepeatedTxn(node), await held(node)
    for asked in (add(4, identity), add(5, identity), end(5, identity), add(0, identity, name="n" * FRAME_BYTES_MAX)):
        await in_general(node, asked, short)
        assert short.answer(asked) is None
    stop(nursery, node)


async def test_memory_is_bounded(nursery: trio.Nursery) -> None:
    node = await started(nursery)
    short = RepeatedTxn(node)
    for number in range(3 * KNOWN_MAX):
        name = f"id-{number}"
        await in_general(node, add(0, await held(node, name), name=name), short)
        assert len(short._known) <= KNOWN_MAX
    stop(nursery, node)
