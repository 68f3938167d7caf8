"""The blocking client has all that the async one has, by the same names and with the same arguments."""

import inspect
import threading
from typing import Any, get_type_hints

import pytest
import trio
import trio.lowlevel

import fencepost
from fencepost import sync
from fencepost.client.consumer.whole_transactions import WholeTransactions
from fencepost.client.core.partitions import PartitionInfo
from fencepost.client.producer.deliveries import Delivery
from fencepost.client.producer.producer import ProducerBatch
from fencepost.client.transactions.producer import TransactionBlock
from fencepost.client.transactions.transaction import Transaction
from fencepost.sync.loop import Loop
from fencepost.sync.mirror import Mirror, Stream, view

PAIRS: list[tuple[type, type]] = [
    (fencepost.Client, sync.Client),
    (fencepost.Producer, sync.Producer),
    (ProducerBatch, sync.ProducerBatch),
    (Delivery, sync.Delivery),
    (fencepost.TransactionalProducer, sync.TransactionalProducer),
    (fencepost.TwoPhaseProducer, sync.TwoPhaseProducer),
    (TransactionBlock, sync.TransactionBlock),
    (Transaction, sync.Transaction),
    (fencepost.Consumer, sync.Consumer),
    (WholeTransactions, sync.WholeTransactions),
    (fencepost.Queue, sync.Queue),
    (fencepost.Message, sync.Message),
    (fencepost.Admin, sync.Admin),
]
PROTOCOLS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
MORE_HERE = {("Client", "from_config"): {"timeout"}}
"""Arguments that only the blocking client has: deadlines are trio's otherwise."""


def names_of(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") or name in PROTOCOLS]


@pytest.mark.parametrize(("async_one", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_exists_there_exists_here(async_one: type, blocking: type) -> None:
    missing = [name for name in names_of(async_one) if not hasattr(blocking, PROTOCOLS.get(name, name))]
    assert missing == []


@pytest.mark.parametrize(("async_one", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_is_generic_there_is_generic_here(async_one: type, blocking: type) -> None:
    assert hasattr(blocking, "__class_getitem__") == hasattr(async_one, "__class_getitem__")
    assert str(sync.Consumer[int, str]) == "fencepost.sync.consumer.Consumer[int, str]"


@pytest.mark.parametrize(("async_one", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_arguments_are_the_same(async_one: type, blocking: type) -> None:
    for name in names_of(async_one):
        theirs, ours = getattr(async_one, name), getattr(blocking, PROTOCOLS.get(name, name))
        if isinstance(inspect.getattr_static(async_one, name), property) or not callable(theirs):
            continue
        assert not inspect.iscoroutinefunction(ours), name
        given = {one.name: (one.kind, one.default) for one in inspect.signature(ours).parameters.values()}
        wanted = {one.name: (one.kind, one.default) for one in inspect.signature(theirs).parameters.values()}
        more = MORE_HERE.get((blocking.__name__, name), set())
        assert {one: how for one, how in given.items() if one not in more} == wanted, f"{blocking.__name__}.{name}"
        assert more <= set(given)


@pytest.mark.parametrize(("async_one", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_arguments_have_types_where_a_class_has_its_own_method(async_one: type, blocking: type) -> None:
    """No `Any`, so that `help` and an editor without stubs say what the async client says."""
    for name in {one for kind in blocking.__mro__ for one in vars(kind)} & set(names_of(async_one)):
        method = inspect.getattr_static(blocking, name)
        if inspect.isfunction(method) and not hasattr(method, "__wrapped__"):
            assert Any not in inspect.get_annotations(method, eval_str=False).values(), f"{blocking.__name__}.{name}"


@pytest.mark.parametrize(("async_one", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_nothing_here_is_undocumented(async_one: type, blocking: type) -> None:
    assert blocking.__doc__
    assert [name for name in dir(blocking) if not name.startswith("_") and not _documented(blocking, name)] == []


def _documented(kind: type, name: str) -> bool:
    return bool(inspect.getdoc(inspect.getattr_static(kind, name)))


class Lamp:
    """Something async, as a colleague may add it tomorrow."""

    def __init__(self) -> None:
        self.lit = False

    @property
    def colour(self) -> str:
        """Which colour it has."""
        return "green"

    async def light(self, brightness: int = 1) -> int:
        """Light it."""
        await trio.lowlevel.checkpoint()
        self.lit = True
        return brightness

    def off(self) -> str:
        """Put it out; tells in which thread."""
        return threading.current_thread().name

    def other(self) -> "Lamp":
        """Another one."""
        return Lamp()

    async def flashes(self) -> Any:
        """An async generator."""
        for n in range(3):
            await trio.lowlevel.checkpoint()
            yield n


def test_a_new_method_needs_no_line() -> None:
    class BlockingLamp(Mirror, of=Lamp):
        """As Lamp, blocking."""

    loop = Loop(fencepost.Client("127.0.0.1:1"), None)
    loop.start()
    try:
        lamp = BlockingLamp(loop, Lamp())
        assert lamp.light(brightness=3) == 3
        assert lamp.lit
        assert lamp.colour == "green"
        assert lamp.off() == "fencepost"
        assert isinstance(lamp.other(), BlockingLamp)
        flashes = lamp.flashes()
        assert isinstance(flashes, Stream)
        assert list(flashes) == [0, 1, 2]
        assert view(loop, 3) == 3
        with pytest.raises(AttributeError):
            lamp.dance()
    finally:
        loop.close(raising=True)


def test_a_name_is_a_property_everywhere_or_a_method_everywhere() -> None:
    """Not of transactions: `committed` of a transaction is its outcome, that of a consumer its group's offsets."""
    kinds: dict[str, dict[str, set[str]]] = {}
    for pair in PAIRS:
        for kind in pair:
            if kind.__name__ in ("Transaction", "WholeTransactions"):
                continue
            for name in (name for name in dir(kind) if not name.startswith("_")):
                sort = "property" if isinstance(inspect.getattr_static(kind, name), property) else "method"
                kinds.setdefault(name, {}).setdefault(sort, set()).add(kind.__qualname__)
    assert {name: sorts for name, sorts in kinds.items() if len(sorts) > 1} == {}


def test_producers_and_consumers_tell_partitions_and_figures_alike() -> None:
    clients = (fencepost.Producer, fencepost.TransactionalProducer, fencepost.TwoPhaseProducer, fencepost.Consumer)
    told = {get_type_hints(inspect.unwrap(kind.partitions_for))["return"] for kind in clients}
    assert told == {dict[fencepost.TopicPartition, PartitionInfo]}
    for kind in clients:
        figures = get_type_hints(inspect.unwrap(kind.metrics))["return"]
        assert get_type_hints(figures.prometheus)["return"] == dict[str, float], kind
