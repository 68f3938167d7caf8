"""What must hold of the rows in the database and of the brokers' views, whatever happened."""

from collections.abc import Iterator

from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.scanning import replay
from fencepost.protocol.batch_header import BatchHeader, assign_offset, iter_headers, read_header
from fencepost.protocol.topics import TopicPartition
from tests.models.core_broker import BODY, DATA, IDS, TXNS, Broker, P, decision, kept, shared
from tests.models.core_world import World


def violations(world: World, *, settled: bool = False) -> list[str]:
    """Every rule that is broken now; `settled`: nothing waits any more."""
    found = [
        f"{tp}: the row at {row.base} refers to object {row.placement.object_id}, which was deleted"
        for tp in IDS
        for row, data in world.rows(tp)
        if not data
    ]
    if found:
        return found
    for tp in IDS:
        found += [f"{tp}: {what}" for what in _wrong_rows(world, tp)]
    for (tp, body), offset in world.acknowledged().items():
        if (offset, body) not in placed(world, tp):
            found.append(f"{tp}: an acknowledged record is not at {offset}")
    for name, broker in world.brokers.items():
        found += [f"broker {name}, {what}" for what in _wrong_views(world, broker)]
        if (broker.fenced or broker.writer.fenced) and broker.is_current:
            found.append(f"broker {name} is fenced, and was not taken over")
        if settled and broker.is_current and not broker.fenced:
            open_tickets = sum(not ticket.is_settled for _, _, ticket in broker.tickets)
            if open_tickets or broker.task is not None:
                found.append(f"broker {name}: {open_tickets} appends have no result")
    return found + _wrong_ends(world)


def batches(world: World, tp: TopicPartition) -> Iterator[tuple[int, int, BatchHeader, bytearray]]:
    """The offset, the leader epoch, the header and the bytes of each batch in a log."""
    end = 0
    for row, data in world.rows(tp):
        assert row.base == end, "the rows of a log have no gaps and do not overlap"
        for position, header in iter_headers(data):
            batch = bytearray(data[position : position + header.size_bytes])
            yield end, row.leader_epoch, header, batch
            end += header.last_offset_delta + 1
        assert row.end == end, "a row has the offsets of its batches"


def placed(world: World, tp: TopicPartition) -> list[tuple[int, bytes]]:
    """The offset and the body of each batch in a log."""
    return [(offset, bytes(batch[BODY:])) for offset, _, _, batch in batches(world, tp)]


def _wrong_rows(world: World, tp: TopicPartition) -> Iterator[str]:
    bodies: set[bytes] = set()
    sequences: dict[tuple[int, int], int] = {}
    ended, last_epoch = 0, 0
    for offset, epoch, header, batch in batches(world, tp):
        body = bytes(batch[BODY:])
        if body in bodies:
            yield f"the batch at {offset} is there twice"
        bodies.add(body)
        if epoch < last_epoch:
            yield f"leader epoch {epoch} at {offset} comes after {last_epoch}"
        last_epoch = epoch
        if header.is_control:
            ended = max(ended, header.producer_epoch)
        elif header.producer_id >= 0:
            who = header.producer_id, header.producer_epoch
            if header.base_sequence != sequences.get(who, 0):
                yield f"sequence {header.base_sequence} of {who} at {offset} is out of order"
            sequences[who] = header.base_sequence + 1
            if header.producer_id == P and header.producer_epoch < ended:
                yield f"a record of transaction {header.producer_epoch} at {offset} comes after its end"


def _wrong_ends(world: World) -> list[str]:
    """EndTxn is one commit: the decision and all its markers, each once."""
    found = []
    decided = [body for _, body in placed(world, TXNS)]
    for epoch in range(world.limits.epochs):
        expected = decided.count(bytes(decision(epoch)[BODY:]))
        for tp in DATA:
            marked = sum(
                header.is_control and header.producer_epoch == epoch + 1 for _, _, header, _ in batches(world, tp)
            )
            if marked != expected:
                found.append(f"{tp}: {marked} markers of transaction {epoch}, which was decided {expected} times")
    return found


def _wrong_views(world: World, broker: Broker) -> Iterator[str]:
    for tp, log in broker.logs.items():
        stored, late = shared(log), log._late
        assert late is not None
        there = [one for one in placed(world, tp) if one[0] < stored._bound_end]
        seen = kept(stored)
        if seen != there[len(there) - len(seen) :]:
            yield f"{tp}: its view is not the beginning of the log"
        states = ProducerStates()
        for offset, epoch, _, batch in batches(world, tp):
            if offset < stored._bound_end:
                assign_offset(batch, 0, offset, epoch)
                replay(states, str(tp), 0, read_header(batch), memoryview(batch))
        if (states._entries, states._open) != (late._bound._entries, late._bound._open):
            yield f"{tp}: its producers' state is not what its rows come to"
