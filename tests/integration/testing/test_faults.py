"""`broker.refuse`, `stop_commit`, `drop` and `delay`: whom they meet, and what they leave in log and coordinator."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from time import sleep
from typing import Any

import pytest

from fencepost import ErrorCode, KafkaError, sync
from fencepost.protocol.primitives import ArrayOf, LengthPrefixed
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import StructType, Value
from fencepost.testing import Broker, BrokerGoneError
from fencepost.testing.faults import Fault, Step, stopping
from fencepost.testing.refusals import HARMLESS, may_refuse, overwrite, refusal
from tests.integration.testing.writers import Fencepost


def states(broker: Broker) -> list[str]:
    """The phases of the transactions that are not over."""
    return [one.state for one in broker.open_transactions()]


def test_a_refused_request_has_no_effect_and_the_client_tries_again(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    fault = fencepost_broker.refuse("produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with sync.Client(fencepost_broker.bootstrap, retry_backoff=0.02) as client, client.producer() as producer:
        producer.send("orders", b"one")
    assert fault.hits == 2
    assert fault.spent
    assert fencepost_broker.log("orders").end == 1
    assert "Produce" in fencepost_broker.journal.tail()
    assert "NOT_LEADER_OR_FOLLOWER" in fencepost_broker.journal.tail()


def test_an_error_after_the_effect_is_told_apart_by_sequence(fencepost_broker: Broker) -> None:
    """Row P3, where the broker says that it failed and it did not."""
    fencepost_broker.create_topic("orders")
    fault = fencepost_broker.refuse("Produce", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, took_effect=True)
    with sync.Client(fencepost_broker.bootstrap, retry_backoff=0.02) as client, client.producer() as producer:
        assert producer.send("orders", b"one").offset == 0
    assert fault.hits == 1
    fencepost_broker.assert_exactly_once("orders", ["one"])


def test_only_the_named_client_meets_it(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    fault = fencepost_broker.refuse("Produce", "INVALID_RECORD", times=None, client_id="unlucky")
    for client_id in ("unlucky", "lucky"):
        with sync.Client(fencepost_broker.bootstrap, client_id=client_id) as client, client.producer() as producer:
            if client_id == "unlucky":
                with pytest.raises(KafkaError):
                    producer.send("orders", client_id.encode())
            else:
                producer.send("orders", client_id.encode())
    assert fault.hits == 1
    fencepost_broker.assert_exactly_once("orders", ["lucky"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_connection_is_no_loss(fencepost_broker: Broker, when: str) -> None:
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"one")
    fault = fencepost_broker.drop("EndTxn", when="before" if when == "before" else "after")
    writer.commit()
    writer.close()
    assert fault.hits == 1
    fencepost_broker.assert_exactly_once("orders", ["one"])


@contextmanager
def committing(writer: Fencepost) -> Iterator[None]:
    """A commit in a thread of its own while the block runs; it must have succeeded behind the block."""
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(writer.commit)
        yield
        commit.result(100)


def test_between_prepare_and_the_markers_no_reader_sees_a_thing(fencepost_broker: Broker) -> None:
    """Row T7: the order is Prepare, markers, Complete; readers of committed data wait for the marker (I1)."""
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"one")
    fault = fencepost_broker.stop_commit("prepare")
    with committing(writer):
        fault.wait(timeout=100)
        assert states(fencepost_broker) == ["PrepareCommit"]
        assert fencepost_broker.log("orders").verdicts == ["open"]
        assert fencepost_broker.committed("orders") == []
        with pytest.raises(AssertionError, match=r"1 transaction is not over:\n  'billing-1': PrepareCommit for"):
            fencepost_broker.assert_no_open_transactions()
        fault.release()
    writer.close()
    assert states(fencepost_broker) == []
    fencepost_broker.assert_exactly_once("orders", ["one"])


@pytest.mark.parametrize(
    ("step", "left_behind"),
    [
        ("prepare", [["open"], ["open"]]),
        ("marker", [["COMMIT", "committed"], ["open"]]),
        ("markers", [["COMMIT", "committed"], ["COMMIT", "committed"]]),
    ],
)
def test_a_crash_between_the_steps_of_a_commit_is_mended_by_the_next_life(
    fencepost_broker: Broker, step: Step, left_behind: list[list[str]]
) -> None:
    """Row T13: what was prepared is finished, and a marker that is written twice says the same."""
    topics = [fencepost_broker.create_topic(name) for name in ("invoices", "orders")]
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    for topic in topics:
        writer.send(topic, b"one", b"two")
    fault = fencepost_broker.stop_commit(step)
    with committing(writer):
        fault.wait(timeout=100)
        assert [sorted(set(fencepost_broker.log(topic).verdicts)) for topic in topics] == left_behind
        fencepost_broker.restart()
    writer.close()
    fencepost_broker.assert_no_open_transactions()
    for topic in topics:
        fencepost_broker.assert_exactly_once(topic, ["one", "two"])
        assert set(fencepost_broker.log(topic).verdicts) == {"committed", "COMMIT"}


def test_then_kill_leaves_the_broker_dead_at_that_step(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"one")
    fault = fencepost_broker.stop_commit("prepare", then="kill")
    with committing(writer):
        fault.wait(timeout=100)
        with pytest.raises(BrokerGoneError):
            fencepost_broker.topics()
        assert not fencepost_broker.running
        fencepost_broker.start()
    writer.close()
    fencepost_broker.assert_exactly_once("orders", ["one"])


def test_a_call_while_the_broker_dies_returns_when_it_is_dead(
    fencepost_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has let go of its token, the thread still tidies up: the broker counted as running at that moment."""
    dying, note = Event(), fencepost_broker.journal.note

    def slowly(what: str) -> None:
        note(what)
        if what == "killed":
            dying.set()
            sleep(0.3)

    monkeypatch.setattr(fencepost_broker.journal, "note", slowly)
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"one")
    fencepost_broker.stop_commit("prepare", then="kill")
    with committing(writer):
        assert dying.wait(100)
        with pytest.raises(BrokerGoneError):
            fencepost_broker.topics()
        assert not fencepost_broker.running
        fencepost_broker.start()
    writer.close()
    fencepost_broker.assert_exactly_once("orders", ["one"])


def test_a_newcomer_can_be_stopped_while_it_aborts_for_its_predecessor(fencepost_broker: Broker) -> None:
    """Row T2: InitProducerId aborts what is open, in the same steps."""
    fencepost_broker.create_topic("orders")
    zombie = Fencepost(fencepost_broker.bootstrap, "billing-1")
    zombie.send("orders", b"never")
    fault = fencepost_broker.stop_commit("prepare", api="InitProducerId", then="restart")
    Fencepost(fencepost_broker.bootstrap, "billing-1").close()
    assert fault.hits == 1
    assert fencepost_broker.log("orders").verdicts == ["aborted", "ABORT"]
    with pytest.raises(KafkaError):
        zombie.commit()
    zombie.close()


def test_what_never_reaches_the_step_is_answered_and_the_fault_waits_on(fencepost_broker: Broker) -> None:
    fault = fencepost_broker.stop_commit("prepare", api="InitProducerId")
    Fencepost(fencepost_broker.bootstrap, "billing-1").close()
    assert (fault.hits, fault.spent) == (0, False)


def test_heal_forgets_them_all_and_lets_go(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"one")
    fault = fencepost_broker.stop_commit("prepare")
    fencepost_broker.drop()
    with committing(writer):
        fault.wait(timeout=100)
        fencepost_broker.heal()
    writer.close()
    fencepost_broker.assert_exactly_once("orders", ["one"])


def test_orders_that_make_no_sense_are_refused_with_what_would(fencepost_broker: Broker) -> None:
    with pytest.raises(ValueError, match="is it Produce"):
        fencepost_broker.refuse("Prodce", 1)
    with pytest.raises(ValueError, match="is it NOT_COORDINATOR"):
        fencepost_broker.refuse("EndTxn", "NOT_CORDINATOR")
    with pytest.raises(ValueError, match="has no steps"):
        fencepost_broker.stop_commit("prepare", api="Produce")
    with pytest.raises(ValueError, match="took_effect"):
        fencepost_broker.refuse("IncrementalAlterConfigs", "POLICY_VIOLATION")
    with pytest.raises(ValueError, match="one request at least"):
        fencepost_broker.refuse("Produce", "INVALID_RECORD", times=0)
    with pytest.raises(ValueError, match="one request at least"):
        fencepost_broker.drop(times=-1)
    with pytest.raises(ValueError, match="NONE is not an error"):
        fencepost_broker.refuse("Produce", 0)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no time to wait"):
            fencepost_broker.delay("Fetch", seconds=seconds)


def test_a_fault_for_one_request_is_for_one_also_when_two_are_on_their_way() -> None:
    """A transaction's end that has not come to its step yet holds the place; an order that was ended stays ended."""
    api, stop = stopping("EndTxn", "prepare", "hold")
    fault = Fault(api, stop, 1, None, lambda what: what())
    with fault.awaited():
        assert not fault.matches(api, None)
    assert fault.matches(api, None)
    fault.meet()
    assert fault.spent
    fault.meet()
    assert fault.spent
    assert not fault.matches(api, None)


def test_a_member_of_the_consumer_protocol_can_be_refused(fencepost_broker: Broker) -> None:
    """KIP-848: what is refused leaves no member behind, and the client joins afterwards."""
    fencepost_broker.create_topic("orders")
    fault = fencepost_broker.refuse("ConsumerGroupHeartbeat", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    options = {"group": "billing", "group_protocol": "consumer"}
    with (
        sync.Client(fencepost_broker.bootstrap, retry_backoff=0.02) as client,
        client.producer() as producer,
        client.consumer("orders", **options) as consumer,
    ):
        producer.send("orders", b"one")
        assert next(iter(consumer)).value == b"one"
    assert fault.hits == 2


@pytest.mark.parametrize("api", [api for api in API_BY_KEY.values() if may_refuse(api)], ids=lambda api: str(api.name))
def test_a_refusal_can_be_written_in_every_version_and_says_its_code(api: Api) -> None:
    """The request has one element in each of its arrays."""
    for version in range(api.served[0], api.served[1] + 1):
        code = ErrorCode.NOT_COORDINATOR
        if api.name in HARMLESS:
            answer = overwrite(api, filled(api.response), code)
        else:
            answer = refusal(api, filled(api.request), version, code)
        read = api.response.decode(api.response.encode(answer, version), version)
        assert int(code) in _codes(read), (api.name, version)


def filled(struct: StructType) -> Any:
    """A value with one element in each of its arrays."""
    value = struct()
    for name, field in struct.fields.items():
        if isinstance(field.subcon, ArrayOf):
            kind = field.subcon.subcon
            plain = "x" if isinstance(kind, LengthPrefixed) else 0
            setattr(value, name, [filled(kind) if isinstance(kind, StructType) else plain])
    return value


def _codes(value: Any) -> set[int]:
    found: set[int] = set()
    for name in value._fields:
        inner = getattr(value, name)
        if name.endswith("error_code"):
            found.add(inner)
        for element in inner if isinstance(inner, list) else ():
            found |= _codes(element) if isinstance(element, Value) else set()
    return found
