"""Every exception of the client survives pickle and copy, as worker processes and test runners need it."""

import copy
import inspect
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pkgutil import walk_packages
from typing import Any

import pytest

import fencepost.client
import fencepost.sync
from fencepost import DeliveryError, ErrorCode, FatalError, ItemsFailedError, KafkaError, TopicPartition
from fencepost.client.consumer.read_errors import CorruptRecordsError

GIVEN: dict[str, Any] = {
    "code": ErrorCode.MESSAGE_TOO_LARGE,
    "api": "Produce",
    "node": 3,
    "partition": TopicPartition("t", 0),
    "errors": {"t": KafkaError("one", code=ErrorCode.UNKNOWN_TOPIC_ID)},
    "results": {"u": 1},
    "records": (),
    "may_be_written": True,
    "sent": True,
}
"""Arguments of the constructors; the others are strings and numbers."""


def all_errors() -> list[type[KafkaError]]:
    """KafkaError and every subclass in the packages that a program imports."""
    for package in (fencepost.client, fencepost.sync):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)

    def below(kind: type[KafkaError]) -> Iterator[type[KafkaError]]:
        yield kind
        for one in kind.__subclasses__():
            yield from below(one)

    found = {kind for kind in below(KafkaError) if kind.__module__.startswith("fencepost.")}
    return sorted(found, key=lambda kind: kind.__name__)


def made(kind: type[KafkaError]) -> KafkaError:
    entries = [entry for entry in inspect.signature(kind).parameters.values() if entry.default is entry.empty]
    values = {entry.name: GIVEN.get(entry.name, "m" if "str" in str(entry.annotation) else 7) for entry in entries}
    return kind(**values)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_exception_is_the_same_behind_pickle_and_copy(kind: type[KafkaError]) -> None:
    error = made(kind)
    error.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        same(pickle.loads(pickle.dumps(error, protocol)), error)
    same(copy.copy(error), error)
    same(copy.deepcopy(error), error)


def same(found: KafkaError, expected: KafkaError) -> None:
    assert type(found) is type(expected)
    assert (str(found), found.retriable) == (str(expected), expected.retriable)
    seen, wanted = vars(found), vars(expected)
    assert {name: repr(value) for name, value in seen.items()} == {name: repr(v) for name, v in wanted.items()}
    assert seen["__notes__"] is not wanted["__notes__"]


def test_the_test_knows_the_errors_of_the_packages() -> None:
    assert {DeliveryError, CorruptRecordsError, ItemsFailedError} <= set(all_errors())


def test_a_group_of_errors_keeps_its_members_and_can_be_split() -> None:
    group = ItemsFailedError("some", {"a": KafkaError("x"), "b": FatalError("y")}, {"c": 1})
    found = pickle.loads(pickle.dumps(group))
    assert (list(found.errors), found.results, len(found.exceptions)) == (["a", "b"], {"c": 1}, 2)
    fatal, rest = found.split(FatalError)
    assert (list(fatal.errors), list(rest.errors)) == (["b"], ["a"])


class OwnError(KafkaError):
    """A program's own subclass with another constructor."""

    def __init__(self, topic: str, *, attempts: int) -> None:
        super().__init__(f"{topic} failed", code=ErrorCode.REQUEST_TIMED_OUT)
        self.attempts = attempts


def test_a_programs_own_subclass_needs_nothing_for_pickle() -> None:
    found = pickle.loads(pickle.dumps(OwnError("t", attempts=3)))
    assert (str(found), found.attempts, found.code) == (str(OwnError("t", attempts=3)), 3, ErrorCode.REQUEST_TIMED_OUT)


def work(number: int) -> int:
    if number == 1:
        raise DeliveryError("not acknowledged", may_be_written=True)
    return number


def test_an_error_in_a_worker_broke_the_whole_pool() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        results = [pool.submit(work, number) for number in range(3)]
        with pytest.raises(DeliveryError) as raised:
            results[1].result()
        assert (results[0].result(), results[2].result(), raised.value.may_be_written) == (0, 2, True)
