"""A broker's lease, and the answers that rest on what was read, not written: the database confirms that it is active.

A broker that was paused may have been taken over. What it writes is refused by the fence. But an answer that writes
nothing could be old: an end offset, a committed offset, "this transaction is committed already". Such an answer is sent
only if the broker has reached the database with its identity since the request arrived. Otherwise the answer is
NOT_LEADER_OR_FOLLOWER, or the connection is closed, and the client looks for the active broker.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from fencepost.broker.cluster.commit.remote_markers import RemoteMarkers
from fencepost.broker.cluster.commit.writer import Stopped, Writer
from fencepost.broker.cluster.engine import Fenced
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.network.reply import READY, Durable, Ready, Reply, ready
from fencepost.broker.ports import Broker
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchResponse
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.protocol.messages.api02_list_offsets import ListOffsetsRequest

OF_LOGS = frozenset({ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_PRODUCERS})
"""APIs whose answers rest on logs: once the lease has ended, they are NOT_LEADER_OR_FOLLOWER anyway."""
OF_COORDINATORS = frozenset(
    {
        ApiKey.OFFSET_FETCH,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""APIs whose answers rest on coordinators' states. Heartbeats are not among them: an old answer does no harm."""
READS = OF_LOGS | {ApiKey.OFFSET_FETCH}
"""APIs that only read."""
UNCONFIRMED = "this broker is not active in its cluster any more, or cannot reach the database"

logger = logging.getLogger(__name__)


class Lease:
    """The lease of one run. Each renewal also absorbs the rows of guests."""

    def __init__(
        self,
        writer: Writer,
        lease_ms: int,
        remote_markers: RemoteMarkers,
        over: trio.Event,
        taken_over: Callable[[], None],
    ) -> None:
        """`over` is set when the run ends; `taken_over` ends it."""
        self.remote_markers = remote_markers
        self._writer = writer
        self._lease_ms = lease_ms
        self._over, self._taken_over = over, taken_over
        self._renewal_wanted = trio.Event()
        self._renewed = trio.Event()
        self._confirmed_at = -math.inf
        """When the last look began that found this broker's place and the rows of guests."""

    @property
    def holds(self) -> bool:
        """Whether clients may use this broker's logs: it has renewed its lease in time.

        Otherwise another broker may own them already. What this one commits cannot become wrong, but what it reads
        may be old, and its clients must look for the new leader.
        """
        writer = self._writer
        return not writer.fenced and writer.idle_seconds * 1000 < self._lease_ms

    def now(self) -> float:
        return self._writer.now()

    async def keep(self) -> None:
        """Renew the lease until the broker is taken over, or cancelled; also while the broker starts."""
        while not self._over.is_set():
            with trio.move_on_after(self._lease_ms / 4000):
                await self._renewal_wanted.wait()
            self._renewal_wanted = trio.Event()
            began = self.now()
            try:
                if await self._look_and_renew():
                    self._confirmed_at = began
            except* (Fenced, Stopped) as error:
                logger.warning("this broker lost its place in the cluster: %s", error.exceptions[0])
                self._taken_over()
            finally:
                self._renewed.set()
                self._renewed = trio.Event()

    async def _look_and_renew(self) -> bool:
        """Renew the lease, and meanwhile absorb markers of other brokers. Returns whether that succeeded, too."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, self._writer.renew, abandon_on_cancel=True))
            return await self.remote_markers.apply_external()

    async def confirm(self, since: float) -> bool:
        """Whether the database has confirmed at `since` or later that this broker has its place, and has shown it the
        rows of guests.

        Waits for that until the lease ends.
        """
        while max(self._confirmed_at, self._writer.renewed_at if self.remote_markers.impossible else -math.inf) < since:
            if not self.holds:
                return False
            self._renewal_wanted.set()
            with trio.move_on_after(self._lease_ms / 1000):
                await self._renewed.wait()
        return True


def confirmed(lease: Lease, api_key: int, handle: Handler) -> Handler:
    """The handler of an API, with the confirmation of its answers where they need one."""
    if api_key not in OF_LOGS | OF_COORDINATORS | {ApiKey.FETCH}:
        return handle

    def needs_confirmation(reply: Ready) -> bool:
        if api_key in OF_COORDINATORS:
            return not isinstance(reply, Durable)  # else the commit for which it waits confirms it
        return lease.holds and _out_of_range(reply)

    def confirming(node: Broker, request: Any, context: RequestContext) -> Reply:
        since = lease.now()
        if api_key == ApiKey.LIST_OFFSETS:
            logs = _logs_of(node, request)
            if request.replica_id >= 0:
                return after_hint(logs, partial(handle, node, request, context))
            for log in logs:  # also those without an open transaction
                lease.remote_markers.want(log)
        if api_key in READS:
            return read(since, partial(handle, node, request, context))
        reply = handle(node, request, context)
        if isinstance(reply, READY) and not needs_confirmation(reply):
            return reply
        return later(since, reply, partial(handle, node, request, context))

    async def after_hint(logs: "list[PartitionLog]", answer: Callable[[], Reply]) -> Ready:
        """A coordinator says that it has written markers there (see peers/notifying.py). It wants to know that they
        were read: the answer itself needs no confirmation.
        """
        await lease.remote_markers.apply_external_now(logs)
        return await ready(answer())

    async def read(since: float, answer: Callable[[], Reply]) -> Ready:
        """Confirm first: then the answer rests on the markers of other brokers, too."""
        if not await lease.confirm(since) and api_key in OF_COORDINATORS:
            raise CloseConnection(UNCONFIRMED)
        return await ready(answer())  # NOT_LEADER_OR_FOLLOWER once the lease has ended

    async def later(since: float, reply: Reply, again: Callable[[], Reply]) -> Ready:
        answer = await ready(reply)
        if not needs_confirmation(answer) or await lease.confirm(since):
            return answer
        if api_key in OF_COORDINATORS:
            raise CloseConnection(UNCONFIRMED)
        return await ready(again())  # NOT_LEADER_OR_FOLLOWER

    return confirming


def _logs_of(node: Broker, request: "ListOffsetsRequest") -> "list[PartitionLog]":
    asked = [TopicPartition(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    return [log for log in map(node.partition, asked) if log is not None]


def _out_of_range(reply: Ready) -> bool:
    """Whether a partition's offset seems to be out of range: at the active broker it may be in range."""
    return isinstance(reply, FetchResponse) and any(
        partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for topic in reply.responses
        for partition in topic.partitions
    )
