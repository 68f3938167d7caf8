"""Caps per principal: connections, transactional ids, open transactions and producer ids (fencepost's own settings)."""

import time
from collections.abc import Iterator

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.sasl_broker import LISTEN, LISTENERS, connect, log_in
from tests.kit.wire import (
    ADD_PARTITIONS,
    INIT_PRODUCER_ID,
    PRODUCE,
    ConnectionEnded,
    Wire,
    add_request,
    batch_of,
    produce_request,
)

METADATA = 3
CAPS = {
    "principal.max.connections": "3",
    "principal.max.transactional.ids": "2",
    "principal.max.open.transactions": "1",
    "principal.max.producer.ids": "2",
}
REFUSED = ErrorCode.POLICY_VIOLATION


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    work_dir = tmp_path_factory.mktemp("caps")
    with BrokerProcess(work_dir, settings=LISTENERS | CAPS, arguments=LISTEN) as process:
        with Wire(process.connect()) as wire:
            wire.create_topic("t")
        yield process
        assert "Traceback" not in process.log()


@pytest.fixture
def alice(broker: BrokerProcess) -> Iterator[Wire]:
    yield from logged_in(broker, "alice")


@pytest.fixture
def bob(broker: BrokerProcess) -> Iterator[Wire]:
    yield from logged_in(broker, "bob")


def logged_in(broker: BrokerProcess, user: str) -> Iterator[Wire]:
    with connect(broker) as wire:
        assert log_in(wire, user).error_code == ErrorCode.NONE
        yield wire


def take_id(wire: Wire, transactional_id: str | None) -> tuple[ErrorCode, tuple[int, int]]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = wire.call(INIT_PRODUCER_ID, 4, request)
    return ErrorCode(response.error_code), (response.producer_id, response.producer_epoch)


def is_served(wire: Wire) -> bool:
    try:
        return bool(wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers)
    except (ConnectionEnded, BrokenPipeError):
        return False


def test_connections_of_a_principal_are_bounded(broker: BrokerProcess, alice: Wire, bob: Wire) -> None:
    """The login succeeds, as its password is right; then the connection is closed."""
    others = [connect(broker) for _ in range(3)]
    for wire in others:
        assert log_in(wire).error_code == ErrorCode.NONE
    assert [is_served(wire) for wire in (alice, *others, bob)] == [True, True, True, False, True]
    assert "cause=User:alice has 3 connections already (principal.max.connections)" in broker.log()
    others[0].close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connect(broker) as again:
            log_in(again)
            if is_served(again):
                break
    else:
        pytest.fail("a closed connection makes room")
    for wire in others:
        wire.close()


def test_transactional_ids_and_open_transactions_are_bounded(broker: BrokerProcess, alice: Wire, bob: Wire) -> None:
    assert take_id(alice, "a-1")[0] is ErrorCode.NONE
    second = take_id(alice, "a-2")[1]
    assert take_id(alice, "a-3")[0] is REFUSED
    assert take_id(alice, "a-2") == (ErrorCode.NONE, (second[0], second[1] + 1)), "an id that it has"
    second = second[0], second[1] + 1
    assert take_id(bob, "b-1")[0] is ErrorCode.NONE
    assert take_id(bob, "a-1")[0] is ErrorCode.NONE, "the id is bob's now, as nothing says whose it is"
    code, third = take_id(alice, "a-3")
    assert code is ErrorCode.NONE
    assert "User:alice refused at 127.0.0.1: it has 2 transactional ids, 'a-3' would be one more" in broker.log()

    alice.add_partitions("a-2", second, "t", 0)
    refused = alice.call(ADD_PARTITIONS, 3, add_request("a-3", third, "t", 0)).results_by_topic_v3_and_below
    assert [one.partition_error_code for one in refused[0].results_by_partition] == [REFUSED]
    batch = batch_of(b"x", producer_id=third[0], producer_epoch=third[1], base_sequence=0, transactional=True)
    request = produce_request("t", batch, transactional_id="a-3")
    assert alice.call(PRODUCE, 12, request).responses[0].partition_responses[0].error_code == REFUSED
    assert (
        "it has 1 open transactions, that of 'a-3' would be one more (principal.max.open.transactions)" in broker.log()
    )
    assert alice.end_txn("a-2", second, commit=True).error_code == ErrorCode.NONE
    assert alice.call(PRODUCE, 12, request).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert alice.end_txn("a-3", third, commit=True).error_code == ErrorCode.NONE


def test_producer_ids_are_bounded(broker: BrokerProcess, alice: Wire, bob: Wire) -> None:
    assert [take_id(alice, None)[0] for _ in range(3)] == [ErrorCode.NONE, ErrorCode.NONE, REFUSED]
    assert take_id(bob, None)[0] is ErrorCode.NONE
    assert "User:alice refused at 127.0.0.1: it has 2 producer ids (principal.max.producer.ids)" in broker.log()
