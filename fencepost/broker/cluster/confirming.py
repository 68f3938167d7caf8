"""Answers that rest on what was read, not written: the database confirms that this broker was still active.

A broker that was paused may have been taken over. What it writes is refused by the fence. But an answer that writes
nothing could be old: an end offset, a committed offset, "this transaction is committed already". Such an answer is sent
only if the broker has reached the database with its identity since the request arrived. Otherwise the answer is
NOT_LEADER_OR_FOLLOWER, or the connection is closed, and the client looks for the active broker.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.network.reply import READY, Durable, Ready, Reply, ready
from fencepost.broker.ports import HasPartitions
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchResponse
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.cluster.lease import Lease
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
    }
)
"""APIs whose answers rest on coordinators' states. Heartbeats are not among them: an old answer does no harm."""
READS = OF_LOGS | {ApiKey.OFFSET_FETCH}
"""APIs that only read."""
UNCONFIRMED = "this broker is not active in its cluster any more, or cannot reach the database"


def confirmed(lease: "Lease", api_key: int, handle: Handler) -> Handler:
    """The handler of an API, with the confirmation of its answers where they need one."""
    if api_key not in OF_LOGS | OF_COORDINATORS | {ApiKey.FETCH}:
        return handle

    def needs_confirmation(reply: Ready) -> bool:
        if api_key in OF_COORDINATORS:
            return not isinstance(reply, Durable)  # else the commit for which it waits confirms it
        return lease.holds and _out_of_range(reply)

    def confirming(node: HasPartitions, request: Any, context: RequestContext) -> Reply:
        since = lease.now()
        if api_key == ApiKey.LIST_OFFSETS:
            logs = _logs_of(node, request)
            if request.replica_id >= 0:
                return after_hint(logs, partial(handle, node, request, context))
            for log in logs:  # also those without an open transaction
                lease.guest_rows.want(log)
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
        await lease.guest_rows.absorb_now(logs)
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


def _logs_of(node: HasPartitions, request: "ListOffsetsRequest") -> "list[PartitionLog]":
    """The logs of a request that are here."""
    asked = [TopicPartition(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    return [log for log in map(node.partition, asked) if log is not None]


def _out_of_range(reply: Ready) -> bool:
    """Whether a partition's offset seems to be out of range: at the active broker it may be in range."""
    return isinstance(reply, FetchResponse) and any(
        partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for topic in reply.responses
        for partition in topic.partitions
    )
