"""Appending the batches of a Produce request: verification of their transaction, staging, throttling."""

from functools import partial
from typing import NamedTuple

import trio

from fencepost.broker.handlers.produce_reply import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Write, count_failure, reply_to
from fencepost.broker.log.partition import AppendOrigin
from fencepost.broker.log.producer_state import ALREADY_OPEN
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.validation import belongs_in_thread, check_batch
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Ready, Reply, ready
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import is_allowed
from fencepost.coordinator.txn.causes import EXPLAINED
from fencepost.coordinator.txn.state import DEAD
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.batch_header import CorruptBatch, read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import ProduceRequest

ZSTD_SINCE = 7
ABORTABLE_SINCE = 11
IMPLICIT_ADD_SINCE = 12
TOPIC_ID_SINCE = 13

ATTRIBUTES_LOW_BYTE = 22
TRANSACTIONAL = 0x10
_OK, _CLIENT = ErrorCode.NONE, AppendOrigin.CLIENT
"""Globals: reading a member from its enum costs twenty times as much."""
_checking = trio.CapacityLimiter(1)
"""One batch is decompressed at a time, so that the memory for it is that of one batch."""
MIXED_PRODUCERS = "One request carries several producers' transactions"


def write_all(
    node: Broker,
    request: ProduceRequest,
    context: RequestContext,
    writes: list[Write],
    transactional: list[Write],
    large: list[Write],
) -> Reply:
    """Append `writes`, and respond. `transactional` and `large` are those of them that have such a batch."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        _fail_all(writes, ErrorCode.INVALID_REQUIRED_ACKS)
    elif transactional:
        unverified = _check_transactions(node, request, context, transactional, writes)
        if unverified is not None and not _is_verified(node, request, unverified):
            return _verify_first(node, request, context, writes, large, unverified)
    return _write(node, request, context, writes, large)


def _write(
    node: Broker, request: ProduceRequest, context: RequestContext, writes: list[Write], large: list[Write]
) -> Reply:
    """Append the writes whose transaction is verified, in a thread if they are large or slow to check, and respond."""
    if large and (large := _for_thread(node, large)):
        return _stage_first(node, request, context, writes, large)
    if any(map(_is_slow_to_check, writes)):
        return _stage_first(node, request, context, writes, [])
    tickets = _append_all(node, request, context, writes)
    if request.acks != ACKS_ALL and node.flusher.over_backlog([ticket.log for ticket in tickets]):
        return _throttle_first(node, request, context, writes, tickets)
    return reply_to(node, request, context, writes, tickets)


async def _verify_first(
    node: Broker,
    request: ProduceRequest,
    context: RequestContext,
    writes: list[Write],
    large: list[Write],
    unverified: "_Unverified",
) -> Ready:
    await _verify(node, request.transactional_id or "", unverified, context)
    return await ready(_write(node, request, context, writes, large))


async def _stage_first(
    node: Broker, request: ProduceRequest, context: RequestContext, writes: list[Write], large: list[Write]
) -> Ready:
    version = transaction_version(context.api_version)
    for write in filter(_is_slow_to_check, writes):
        assert write.log is not None
        check = partial(check_batch, write.batch, write.log.config, _CLIENT, node.clock.now_ms())
        write.checked = await trio.to_thread.run_sync(check, limiter=_checking)
    async with node.large_writes.staged(large, version, node.clock.now_ms()):
        tickets = _append_all(node, request, context, writes)
    return await _throttle_first(node, request, context, writes, tickets)


def _is_slow_to_check(write: Write) -> bool:
    """Whether a thread should check the batch: it may decompress to a thousand times its size."""
    return write.error is _OK and write.log is not None and belongs_in_thread(write.batch, write.log.config)


def _for_thread(node: Broker, large: list[Write]) -> list[Write]:
    return [
        write for write in large if write.error is _OK and write.log is not None and node.large_writes.wants(write.log)
    ]


async def _throttle_first(
    node: Broker, request: ProduceRequest, context: RequestContext, writes: list[Write], tickets: list[Ticket]
) -> Ready:
    if request.acks != ACKS_ALL:
        await node.flusher.throttle([ticket.log for ticket in tickets])
    return reply_to(node, request, context, writes, tickets)


def _append_all(node: Broker, request: ProduceRequest, context: RequestContext, writes: list[Write]) -> list[Ticket]:
    """Append the batches without an error. Returns the tickets of the appended batches."""
    tickets: list[Ticket] = []
    now_ms = node.clock.now_ms()
    version = transaction_version(context.api_version)
    for write in writes:
        if write.error is _OK:
            assert write.log is not None
            ticket = write.ticket = write.log.append(
                write.batch, _CLIENT, now_ms, transaction_version=version, guard=write.guard, checked=write.checked
            )
            if ticket.error is _OK:
                tickets.append(ticket)
                counters = write.counters
                if counters is not None and not ticket.duplicate:
                    counters.messages_in += ticket.end_offset - ticket.base_offset
                    counters.bytes_in += len(write.batch)
                continue
            write.fail(ticket.error, ticket.message)
            _explain_refused(node, request.transactional_id, write, context)
        elif write.message is MIXED_PRODUCERS:
            _explain_refused(node, request.transactional_id, write, context)
        count_failure(node, write)
    if request.acks != ACKS_ALL:
        for ticket in tickets:
            node.flusher.schedule(ticket.log)
    return tickets


def transaction_version(api_version: int) -> int:
    """T16: from Produce v12 on the client speaks the second version of the transaction protocol."""
    return 2 if api_version >= IMPLICIT_ADD_SINCE else 0


def _fail_all(writes: list[Write], error: ErrorCode) -> None:
    for write in writes:
        if write.error is ErrorCode.NONE:
            write.fail(error)


class _Unverified(NamedTuple):
    """Batches of one producer that has no open transaction in their logs yet."""

    producer_id: int
    producer_epoch: int
    writes: list[Write]


def _check_transactions(
    node: Broker, request: ProduceRequest, context: RequestContext, transactional: list[Write], writes: list[Write]
) -> _Unverified | None:
    """Find the batches that the coordinator must verify (T15): those without an open transaction in their log.

    Without the right to write with the transactional id every write of the request fails, as in Kafka.
    """
    if request.transactional_id is None:
        _fail_all(writes, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return None
    if node.authorizer is not None and not is_allowed(
        node, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
    ):
        for write in writes:
            write.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return None
    producer: tuple[int, int] | None = None
    unverified: list[Write] = []
    for write in transactional:
        if write.error is not _OK:
            continue
        try:
            header = read_header(write.batch)
        except CorruptBatch:
            continue  # the log rejects the batch and explains the fault
        if producer is not None and header.producer_id != producer[0]:
            for other in transactional:
                if other.error is _OK:
                    other.fail(ErrorCode.INVALID_PRODUCER_ID_MAPPING, MIXED_PRODUCERS)
            return None
        producer = (header.producer_id, header.producer_epoch)
        assert write.log is not None
        guard = write.log.verify(
            header.producer_id, header.producer_epoch, header.base_sequence, transaction_version(context.api_version)
        )
        if guard is not None:
            unverified.append(write)
        write.guard = guard or ALREADY_OPEN
    return _Unverified(*producer, unverified) if producer is not None and unverified else None


def _is_verified(node: Broker, request: ProduceRequest, unverified: _Unverified) -> bool:
    """Whether the coordinator holds all these partitions in the open transaction, durably."""
    return node.transactions.is_ongoing_with(
        request.transactional_id or "",
        unverified.producer_id,
        unverified.producer_epoch,
        {write.tp for write in unverified.writes},
    )


async def _verify(node: Broker, transactional_id: str, unverified: _Unverified, context: RequestContext) -> None:
    """Have the coordinator verify or add the partitions, and fail the writes that it rejects (T15, T16).

    If a marker arrives before the append, the write's guard rejects the batch.
    """
    codes = await node.transactions.ensure_partitions(
        transactional_id,
        unverified.producer_id,
        unverified.producer_epoch,
        {write.tp for write in unverified.writes},
        add=context.api_version >= IMPLICIT_ADD_SINCE,
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
        caller=context,
    )
    for write in unverified.writes:
        code = codes[write.tp]
        if code is not ErrorCode.NONE:
            write.fail(code, f"The transaction of {transactional_id!r} takes no batch for {write.tp}: {code.name}")


def _explain_refused(node: Broker, transactional_id: str | None, write: Write, context: RequestContext) -> None:
    """Store the rejected producer and the reason in the fencing history, if the code is one of `EXPLAINED`."""
    if write.error not in EXPLAINED:
        return
    try:
        header = read_header(write.batch)
    except CorruptBatch:
        return
    name = transactional_id if header.is_transactional else None
    state = DEAD if name is None else node.transactions.ids.state_of(name)
    shown = (header.producer_id, header.producer_epoch)
    reason = f"{write.tp}: {write.message or write.error.name}"
    node.transactions.history.refused_write(name, state, shown, write.error, reason, context)
