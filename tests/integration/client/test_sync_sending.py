"""Records of the blocking client that wait on this side while a call goes wrong: none is lost, none comes twice."""

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.sync import Client, TimedOutError, fail_after, sending


@pytest.fixture
def kafka(address: str) -> Iterator[Client]:
    with Client(address, timeout=100) as client:
        yield client


@pytest.fixture(autouse=True)
def crossing_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records cross at `flush`, at the end of a block and by the hundreds, not by the clock."""
    monkeypatch.setattr(sending, "WAIT_S", 1e9)


def create(kafka: Client, topic: str) -> None:
    with kafka.admin() as admin:
        admin.create_topics(topic, partitions=1)


def values_of(kafka: Client, topic: str) -> list[bytes | None]:
    """All committed values; those that are written afterwards show that there are no others."""
    with kafka.producer() as producer:
        producer.send(topic, b"end")
    found: list[bytes | None] = []
    with kafka.consumer(topic) as consumer, fail_after(100):
        for record in consumer:
            if record.value == b"end":
                return found
            found.append(record.value)
    raise AssertionError


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.parametrize("how", ["transaction", "batch"])
def test_one_that_is_wrong_takes_no_others_with_it(kafka: Client, name: str, how: str) -> None:
    create(kafka, name)
    opened: Any = kafka.transactional_producer(name) if how == "transaction" else kafka.producer()
    with opened as producer, getattr(producer, how)() as sent:
        for value in [*numbers(0, 3), 3.5, *numbers(3, 6)]:
            sent.send(name, value)
        with pytest.raises(TypeError):
            producer.flush()
    assert values_of(kafka, name) == numbers(0, 6)


def test_a_call_that_was_too_slow_leaves_what_was_handed_in_before(kafka: Client, name: str) -> None:
    """The deadline ends that call; a program that goes on commits everything, and not the record of the call itself."""
    create(kafka, name)
    with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
        for value in numbers(0, sending.CHUNK - 1):
            txn.send(name, value)
        with pytest.raises(TimedOutError), fail_after(0):
            txn.send(name, b"of the call that failed")  # it looks for the topic
        txn.send(name, b"last")
    assert values_of(kafka, name) == [*numbers(0, sending.CHUNK - 1), b"last"]
