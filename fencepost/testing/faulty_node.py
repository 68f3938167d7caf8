"""The broker under test: every request passes the journal and the faults before the real handler."""

from collections.abc import Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.durability.sync_threads import Failure, SyncThreads
from fencepost.broker.log.storage.store import Store, SyncTask
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.dispatch import Dispatch, Handler, Route
from fencepost.broker.network.reply import READY, Durable, Encoded, Ready, Reply, Response
from fencepost.broker.node import Node
from fencepost.broker.transactions.markers import Appended, Markers
from fencepost.coordinator.deferred import Deferred
from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn.state import Ongoing
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import Api
from fencepost.protocol.topics import TopicPartition
from fencepost.testing.faults import Delay, Drop, Fault, Faults, Refuse, Step, StopAfter
from fencepost.testing.journal import Journal, request_text
from fencepost.testing.jumping_clock import JumpingClock


class FaultyNode(Node):
    """A node with a journal, faults, and markers that can be stopped."""

    def __init__(
        self, config: BrokerConfig, clock: JumpingClock, store: Store, faults: Faults, journal: Journal
    ) -> None:
        self.faults = faults
        self.journal = journal
        self.crash_wanted: trio.Event = trio.Event()
        """Set when a fault requests a crash of the broker."""
        self.restart_wanted = False
        """Whether the broker is started again after the crash."""
        self.disk_threads = WatchedThreads()
        super().__init__(config, clock, store=store, threads=self.disk_threads)

    def wrapped(self, api_key: int, handle: Handler) -> Handler:
        """The handler to use in place of that of an API; faults come before it."""
        return handle

    def _build_coordinators(self) -> None:
        self.markers: StoppableMarkers = StoppableMarkers(self)
        self.dispatch = FaultyDispatch(self, unstable=self.config.unstable_api_versions_enable)
        super()._build_coordinators()


class WatchedThreads(SyncThreads):
    """The threads that wait for the disk; they count the tasks that wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        self.waiting += 1
        try:
            return await super().sync(sync_targets)
        finally:
            self.waiting -= 1


class Hold:
    """Stops the end of one transaction after a step."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.reached = trio.Event()
        self.released = trio.Event()

    def release(self) -> None:
        self.released.set()

    async def wait(self) -> None:
        """Report that the step is reached, and wait for the release."""
        self.reached.set()
        await self.released.wait()


class StoppableMarkers(Markers):
    """The broker's marker writer, which stops at the step of a `Hold`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.holds: dict[int, Hold] = {}
        """Holds by producer id."""

    async def write_markers(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        write = partial(super().write_markers, marker)
        hold = self.holds.pop(marker.producer_id, None)
        if hold is None:
            return await write(partitions)
        ordered = sorted(partitions)
        first = {"prepare": 0, "marker": 1, "markers": len(ordered)}[hold.step]
        results: dict[TopicPartition, ErrorCode] = {}
        if first:
            results.update(await write(ordered[:first]))
        await hold.wait()
        if ordered[first:]:
            results.update(await write(ordered[first:]))
        return results

    def append_with_decision(
        self, marker: Marker, partitions: Collection[TopicPartition], may_be_first: bool
    ) -> Appended | None:
        """As in Markers; None for a transaction that is to be stopped."""
        if marker.producer_id in self.holds:
            return None
        return super().append_with_decision(marker, partitions, may_be_first)


class FaultyDispatch(Dispatch):
    """The table of handlers, each with the faults in front of it."""

    def __init__(self, node: FaultyNode, *, unstable: bool) -> None:
        super().__init__(unstable=unstable, wrap=node.wrapped)
        self._node = node

    def _load(self, api_key: int, version: int) -> Route:
        """Mark every route as blocking: a delayed response must not delay the responses before it."""
        route = super()._load(api_key, version)
        wrapped = self._routes[api_key, version] = route._replace(
            handle=partial(self._handle, route), non_blocking=False
        )
        return wrapped

    def _handle(self, route: Route, node: Node, request: Any, context: RequestContext) -> Reply:
        api = route.api
        fault = self._node.faults.match(api, context.client_id)
        if fault is not None:
            return self._meet(fault, route, request, context)
        reply = route.handle(node, request, context)
        if reply is None or isinstance(reply, READY):
            self._node.journal.answered(api.name, context, request, reply)
            return reply
        return self._noted(api, reply.wait() if isinstance(reply, Deferred) else reply, request, context)

    async def _noted(
        self, api: Api, waiting: Coroutine[Any, Any, Ready], request: Any, context: RequestContext
    ) -> Ready:
        reply = await waiting
        self._node.journal.answered(api.name, context, request, reply)
        return reply

    async def _run(self, handle: Handler, request: Any, context: RequestContext) -> Ready:
        reply = handle(self._node, request, context)
        if reply is None or isinstance(reply, READY):
            return reply
        return await (reply.wait() if isinstance(reply, Deferred) else reply)

    async def _meet(self, fault: Fault, route: Route, request: Any, context: RequestContext) -> Ready:
        """Handle a request to which a fault applies."""
        text = request_text(route.api.name, context, request)
        match fault.action:
            case StopAfter() as stop:
                return await self._stop(fault, stop, route, request, context)
            case Delay(seconds):
                self._note(fault, text)
                await trio.sleep(seconds)
                reply = await self._run(route.handle, request, context)
            case Drop(moment):
                self._note(fault, text)
                if moment == "after":
                    await self._run(route.handle, request, context)
                raise CloseConnection(f"a test drops {text}")
            case Refuse() as refuse:
                self._note(fault, text)
                reply = await self._refuse(refuse, route, request, context)
        self._node.journal.answered(route.api.name, context, request, reply)
        return reply

    async def _refuse(self, refuse: Refuse, route: Route, request: Any, context: RequestContext) -> Ready:
        from fencepost.testing.refusals import HARMLESS, overwrite, refusal  # here: as in faults.py

        api = route.api
        unanswered = api.key == ApiKey.PRODUCE and request.acks == 0
        if refuse.took_effect or api.name in HARMLESS:
            if api.name == "Fetch":
                request.max_wait_ms = 0
            reply = await self._run(route.handle, request, context)
            if not unanswered:
                return overwrite(api, response_of(api, reply, context.api_version), refuse.code)
        if unanswered:  # without a response, closing the connection is the only refusal
            raise CloseConnection("a test refuses a Produce with acks=0")
        refused: Response = refusal(api, request, context.api_version, refuse.code)
        return refused

    async def _stop(self, fault: Fault, stop: StopAfter, route: Route, request: Any, context: RequestContext) -> Ready:
        """Run the handler up to the step; a request that does not reach it is answered as without the fault."""
        node = self._node
        text = request_text(route.api.name, context, request)
        state = node.transactions.ids.state_of(request.transactional_id or "")
        if not isinstance(state, Ongoing):
            return await self._noted(route.api, self._run(route.handle, request, context), request, context)
        producer_id = state.producer.producer_id
        hold = node.markers.holds[producer_id] = Hold(stop.step)
        replies: list[Ready] = []

        async def answer(scope: trio.CancelScope) -> None:
            replies.append(await self._run(route.handle, request, context))
            scope.cancel()

        with fault.awaited():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, nursery.cancel_scope)
                await hold.reached.wait()
                nursery.cancel_scope.cancel()
        if not hold.reached.is_set():
            node.markers.holds.pop(producer_id, None)
            node.journal.answered(route.api.name, context, request, replies[0])
            return replies[0]
        fault.held.append(hold)
        self._note(fault, text)
        if stop.then != "hold":
            node.restart_wanted = stop.then == "restart"
            node.crash_wanted.set()
        raise CloseConnection(f"a test stops {text} after {stop.step}")

    def _note(self, fault: Fault, text: str) -> None:
        self._node.journal.note(f"fault: {text} is {fault.action}")
        fault.meet()


def response_of(api: Api, reply: Ready, version: int) -> Response:
    """The response in a reply, as a value."""
    response = reply.response if isinstance(reply, Durable) else reply
    if isinstance(response, Encoded):
        decoded: Response = api.response.decode(b"".join(response.parts), version)
        return decoded
    assert response is not None, "only Produce with acks=0 has no response"
    return response
