"""What may happen to the commit of a broker in a small world."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.broker.cluster.engine import (
    StoreUnavailable,
)
from tests.kit.sim_engine import SimEngine
from tests.models.core_broker import IDS, Broker, cuts_of

if TYPE_CHECKING:
    from tests.models.core_world import World


def _lost(world: "World", broker: Broker) -> None:
    """The request never reaches the database."""
    broker.engine.before = _once("commit", _break)
    broker.task.sync()


def _unanswered(world: "World", broker: Broker) -> None:
    """The commit happens, and its answer is lost."""
    broker.engine.after = _once("commit", _break)
    broker.task.sync()


def _arrives_first(world: "World", broker: Broker) -> None:
    """The connection breaks; the transaction happens before the broker connects again."""
    broker.engine.held = {"commit"}

    def reconnect() -> None:
        broker.engine.held.clear()
        world.stores.database.deliver()

    broker.engine.before = _once("open_session", reconnect)
    broker.task.sync()


def _in_flight(world: "World", broker: Broker) -> None:
    """The connection breaks; the transaction stays on its way, maybe until after its repetition."""
    broker.engine.held = {"commit"}
    world.in_flight.append((broker.number, cuts_of(broker.task)))
    broker.engine.before = _once("open_session", broker.engine.held.clear)
    broker.task.sync()


def _arrives_between(world: "World", broker: Broker) -> None:
    """The connection breaks; the transaction reaches the database between the new session and its repetition."""
    broker.engine.held = {"commit"}
    reconnect = _once("open_session", broker.engine.held.clear)

    def hook(method: str) -> None:
        if method == "commit" and not broker.engine.held:
            world.stores.database.deliver()
        reconnect(method)

    broker.engine.before = hook
    broker.task.sync()


def _taken_over(world: "World", broker: Broker) -> None:
    """The answer is lost, and the other broker takes over before this one connects again."""
    (other,) = (one for one in world.brokers.values() if one is not broker)
    broker.engine.after = _once("commit", _break)

    def take() -> None:
        if other.is_current and other.task is None and world.takeovers < world.limits.takeovers:
            world.takeovers += 1
            other.take(*IDS.keys() - other.logs.keys())

    broker.engine.before = _once("open_session", take)
    broker.task.sync()


def _collected(world: "World", broker: Broker) -> None:
    """Garbage collection takes every claim just before the commit."""

    def collect() -> None:
        engine = SimEngine(world.stores.database)
        doomed = engine.doomed(0)
        for object_id in doomed:
            world.stores.objects.pop(object_id, None)
        engine.forget(doomed)

    broker.engine.before = _once("commit", collect)
    broker.task.sync()


def _put_fails(world: "World", broker: Broker) -> None:
    """The object store is unavailable once, after the object was put under another id."""
    put, left = broker.row_bytes.put, [True]

    def failing(parts: Any) -> int:
        object_id = put(parts)
        if left:
            left.clear()
            _break()
        return object_id

    broker.row_bytes.put = failing  # type: ignore[method-assign]
    broker.task.sync()
    broker.row_bytes.put = put  # type: ignore[method-assign]


FAULTS: dict[str, Callable[["World", Broker], None]] = {
    "lost": _lost,
    "unanswered": _unanswered,
    "arrives-first": _arrives_first,
    "arrives-between": _arrives_between,
    "in-flight": _in_flight,
    "taken-over": _taken_over,
    "collected": _collected,
    "put-fails": _put_fails,
}


def _break() -> None:
    raise StoreUnavailable("the connection broke")


def _once(method: str, action: Callable[[], None]) -> Callable[[str], None]:
    left = [action]

    def hook(called: str) -> None:
        if called == method and left:
            left.pop()()

    return hook
