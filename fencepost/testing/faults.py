"""Faults that a test adds: which requests match one, and what happens to them."""

import difflib
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.schema_registry import CLIENT_ID

Step = Literal["prepare", "marker", "markers"]
"""The step of its end after which a transaction stops: the Prepare record; the first marker; all markers, without the
Complete record."""
Then = Literal["hold", "kill", "restart"]
Moment = Literal["before", "after"]

STEPS: tuple[Step, ...] = ("prepare", "marker", "markers")
THENS: tuple[Then, ...] = ("hold", "kill", "restart")
ENDS_TRANSACTIONS = frozenset({"EndTxn", "InitProducerId"})
_BY_NAME = {api.name.lower(): api for api in API_BY_KEY.values()}


@dataclass(frozen=True, slots=True)
class Refuse:
    """The answer is an error code; the request has no effect, unless `took_effect`."""

    code: ErrorCode
    took_effect: bool = False

    def __str__(self) -> str:
        return f"answered {self.code.name}" + (" though it took effect" if self.took_effect else "")


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits before it is handled, by the broker's clock."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < math.inf:
            raise ValueError(f"seconds={self.seconds!r} is no time to wait")

    def __str__(self) -> str:
        return f"delayed by {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed, before the request takes effect or after it."""

    moment: Moment

    def __str__(self) -> str:
        return f"dropped {self.moment} it took effect"


@dataclass(frozen=True, slots=True)
class StopAfter:
    """The transaction's end stops after `step`, and the connection is closed."""

    step: Step
    then: Then

    def __str__(self) -> str:
        return f"stopped after {self.step}" + ("" if self.then == "hold" else f", then {self.then}")


Action = Refuse | Delay | Drop | StopAfter


class Releasable(Protocol):
    """Something that a fault holds."""

    def release(self) -> None:
        """Let it continue; in the broker's thread."""


class Fault:
    """One fault. It applies to the next `times` requests (None: to all) that match, until it is cancelled."""

    def __init__(
        self,
        api: Api | None,
        action: Action,
        times: int | None,
        client_id: str | None,
        in_broker: Callable[[Callable[[], None]], None],
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times!r}: a fault is for one request at least, or for all of them (None)")
        self.api = api
        self.action = action
        self.client_id = client_id
        self.hits = 0
        """How many requests it has applied to so far."""
        self.held: list[Releasable] = []
        self._left = times
        self._awaited = 0
        self._in_broker = in_broker
        self._hit = threading.Condition()

    def __repr__(self) -> str:
        who = f" of {self.client_id!r}" if self.client_id is not None else ""
        left = "every" if self._left is None else f"{self._left} more"
        name = self.api.name if self.api else "request"
        return f"<Fault: {left} {name}{who} {self.action}; met {self.hits}>"

    @property
    def spent(self) -> bool:
        """Whether it has applied to all of its `times` requests."""
        return self._left is not None and self._left <= 0

    def matches(self, api: Api, client_id: str | None) -> bool:
        """Whether this fault applies to the next request of this API and client.

        Requests of the schema registry beside the broker are met only if the fault names it.
        """
        return (
            (self._left is None or self._left > self._awaited)
            and (self.api is None or self.api.key == api.key)
            and (client_id != CLIENT_ID if self.client_id is None else self.client_id == client_id)
        )

    def meet(self) -> None:
        """Count a request that it applies to; in the broker's thread."""
        with self._hit:
            self.hits += 1
            if self._left is not None:
                self._left -= 1
            self._hit.notify_all()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Reserve the fault for a request that may still not reach the step: no other request takes its place."""
        self._awaited += 1
        try:
            yield
        finally:
            self._awaited -= 1

    def wait(self, times: int = 1, timeout: float = 10.0) -> None:
        """Return when it has applied to `times` requests. Raises TimeoutError after `timeout` seconds of machine time.

        It blocks the calling thread: the client must run in another thread or process.
        """
        with self._hit:
            if not self._hit.wait_for(lambda: self.hits >= times, timeout):
                raise TimeoutError(f"{self} after {timeout:g} s; {times} wanted")

    def release(self) -> None:
        """Let the transactions continue that it stopped between the steps of their end."""

        def release() -> None:
            while self.held:
                self.held.pop().release()

        self._in_broker(release)

    def cancel(self) -> None:
        """Apply to no further request, and release the held transactions."""
        self._left = 0
        self.release()


class Faults:
    """The faults in force, oldest first. Tests add them in their thread, the broker reads them in its own."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Add a fault after the present ones."""
        self._faults = [*(one for one in self._faults if not one.spent or one.held), fault]
        return fault

    def match(self, api: Api, client_id: str | None) -> Fault | None:
        return next((fault for fault in self._faults if fault.matches(api, client_id)), None)

    def clear(self) -> list[Fault]:
        """Remove all faults and return them; the caller cancels them."""
        faults, self._faults = self._faults, []
        return faults


def api_named(name: str) -> Api:
    """The API of a name, in any case. Raises ValueError, with a similar name."""
    api = _BY_NAME.get(name.lower())
    if api is None:
        near = difflib.get_close_matches(name.lower(), _BY_NAME, 1)
        hint = f"; is it {_BY_NAME[near[0]].name}?" if near else ""
        raise ValueError(f"no API is called {name!r}{hint}")
    return api


def code_of(code: ErrorCode | str | int) -> ErrorCode:
    """An error code by its name or number. Raises ValueError."""
    if isinstance(code, str):
        try:
            return ErrorCode[code.upper()]
        except KeyError:
            near = difflib.get_close_matches(code.upper(), ErrorCode.__members__, 1)
            hint = f"; is it {near[0]}?" if near else ""
            raise ValueError(f"no error is called {code!r}{hint}") from None
    return ErrorCode(code)


def refusing(name: str, code: ErrorCode | str | int, took_effect: bool) -> tuple[Api, Refuse]:
    """The API and the action of a valid `refuse` fault. Raises ValueError."""
    from fencepost.testing.refusals import may_refuse  # here: it imports messages that few tests need

    api, action = api_named(name), Refuse(code_of(code), took_effect)
    if action.code is ErrorCode.NONE:
        raise ValueError("NONE is not an error: name the error to answer")
    if not took_effect and not may_refuse(api):
        raise ValueError(f"{api.name} cannot be refused without taking effect: set took_effect, or use drop()")
    return api, action


def stopping(name: str, step: str, then: str) -> tuple[Api, StopAfter]:
    """The API and the action of a valid `stop_commit` fault. Raises ValueError."""
    api = api_named(name)
    if api.name not in ENDS_TRANSACTIONS:
        raise ValueError(
            f"{api.name} has no steps; {' and '.join(sorted(ENDS_TRANSACTIONS))} end transactions in steps"
        )
    found = next((one for one in STEPS if one == step), None)
    if found is None:
        raise ValueError(f"after={step!r} is none of {', '.join(STEPS)}")
    next_step = next((one for one in THENS if one == then), None)
    if next_step is None:
        raise ValueError(f"then={then!r} is none of {', '.join(THENS)}")
    return api, StopAfter(found, next_step)
