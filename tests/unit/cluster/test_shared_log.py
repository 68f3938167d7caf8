"""Logs of a cluster: rounds, offsets that are bound late, and reads of what other brokers wrote."""

import pytest

from fencepost.broker.cluster.engine import Append, Commit, Placement, Row, RowKind
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.reading import offset_for_timestamp, read_batches
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import iter_headers, read_header
from fencepost.protocol.control_records import same_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.shared_store import TOPIC_ID, StoreBroker, Stores
from tests.unit.log.kit import COMMITTED, NOW_MS, TP, UNCOMMITTED, batch, joined

OTHER = TopicPartition("orders", 3)


def opened(broker: StoreBroker, tp: TopicPartition = TP, topic_id: bytes = TOPIC_ID) -> PartitionLog:
    found = broker.open(str(tp), LogConfig(), topic_id=topic_id)
    return PartitionLog(tp, topic_id, LogConfig(), broker.logs.files(str(tp)), found)


def send(log: PartitionLog, data: bytearray) -> Ticket:
    return log.append(data, AppendOrigin.COORDINATOR, NOW_MS)


def offsets(broker: StoreBroker, log: PartitionLog, start: int = 0) -> list[int]:
    """The base offsets of all readable batches; what is missing arrives at once."""
    found: list[int] = []
    while start < log.high_watermark:
        read = read_batches(log, start, 1 << 20, UNCOMMITTED)
        if read.missing is not None:
            broker.cold.arrive()
            continue
        headers = [header for _, header in iter_headers(joined(read.parts))]
        found += [header.base_offset for header in headers]
        start = headers[-1].next_offset
    return found


def guest(stores: Stores, log_id: int, producer_id: int, epoch: int) -> None:
    """A coordinator's marker from another broker."""
    writer = stores.guest(9)
    marker, header = same_marker(producer_id, epoch, False, 0, NOW_MS)
    data = bytes(marker)
    row = Row(-1, 1, RowKind.RUN, 1, Placement(0, 0, len(data)), NOW_MS, 1, (producer_id,), data, b"", data)
    writer.commit([Append(log_id, None, False, row)])
    assert header.is_control


def test_an_append_is_settled_by_the_round_and_not_before() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    first, second = send(log, batch(3)), send(log, batch(2))
    assert (log.log_end_offset, log.high_watermark, first.is_settled) == (5, 0, False)
    broker.round()
    assert [(one.is_settled, one.base_offset) for one in (first, second)] == [(True, 0), (True, 3)]
    assert log.high_watermark == 5
    (rows,) = stores.database.rows.values()
    assert [(row.base, row.count, row.batches) for row in rows] == [(0, 5, 2)], "one row for each log and round"


def test_what_is_appended_while_a_log_is_held_is_one_commit() -> None:
    """A metadata transaction of many appends (KIP-868): other logs go on meanwhile."""
    stores = Stores()
    broker = stores.broker(1)
    held, other = opened(broker), opened(broker, OTHER, bytes(16))
    held.segments.late.hold()
    first, elsewhere = send(held, batch(1)), send(other, batch(1))
    broker.round()
    second = send(held, batch(1))
    broker.round()
    assert [one.is_settled for one in (first, second, elsewhere)] == [False, False, True]
    held.segments.late.release()
    broker.round()
    assert [one.is_settled for one in (first, second)] == [True, True]
    assert [row.batches for row in stores.database.rows[held.segments.log_id]] == [2]


def test_one_round_is_one_commit_of_all_logs() -> None:
    """A consistent cut: what is appended after the round began is in the next one."""
    stores = Stores()
    broker = stores.broker(1)
    logs = [opened(broker), opened(broker, OTHER, bytes(16))]
    tickets = [send(log, batch(1)) for log in logs]
    (task,) = broker.rounds.begin()
    late = send(logs[0], batch(1))
    task.sync()
    broker.rounds.deliver()
    assert [one.is_settled for one in (*tickets, late)] == [True, True, False]
    assert stores.database.brokers[1].commit_seq == 1
    broker.round()
    assert (late.is_settled, stores.database.brokers[1].commit_seq) == (True, 2)


@pytest.mark.parametrize("inline_bytes", [1 << 14, 0])
def test_the_next_broker_reads_what_the_last_one_wrote(inline_bytes: int) -> None:
    """Inline or in objects: the same batches, the same producers, the same aborted transactions (rows P9, I3)."""
    stores = Stores()
    broker = stores.broker(1, inline_bytes)
    log = opened(broker)
    send(log, batch(3, 7, 0, 0, transactional=True))
    broker.round()
    send(log, batch(2))
    log.append_marker(7, 0, False, 0, 1, NOW_MS)
    broker.round()
    assert bool(stores.objects) == (inline_bytes == 0)
    successor = stores.broker(2, inline_bytes)
    again = opened(successor)
    assert (again.log_end_offset, again.last_stable_offset, again.leader_epoch) == (6, 6, log.leader_epoch + 1)
    assert list(again.producers.entries()) == list(log.producers.entries())
    assert offsets(successor, again) == offsets(broker, log) == [0, 3, 5]
    assert read_batches(again, 0, 1 << 20, COMMITTED).aborted == [(7, 0)]
    ticket = send(log, batch(1))
    broker.round()
    assert (ticket.is_settled, broker.fenced) == (False, 1)
    ticket = send(again, batch(1, 8, 0, 0))
    successor.round()
    assert (ticket.base_offset, offsets(successor, again)) == (6, [0, 3, 5, 6])


def test_batches_carry_their_offsets_and_epoch_wherever_they_were_read() -> None:
    stores = Stores()
    broker = stores.broker(1, 0)
    log = opened(broker)
    for _ in range(3):
        send(log, batch(2))
        broker.round()
    successor = stores.broker(2)
    again = opened(successor)
    offsets(successor, again)
    data = joined(read_batches(again, 0, 1 << 20, UNCOMMITTED).parts)
    headers = [header for _, header in iter_headers(data)]
    assert [(one.base_offset, one.partition_leader_epoch) for one in headers] == [(0, 1), (2, 1), (4, 1)]


def test_a_guests_marker_shifts_the_appends_of_other_producers() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    send(log, batch(1, 7, 0, 0, transactional=True))
    broker.round()
    ticket = send(log, batch(2, 8, 0, 0))
    guest(stores, log.segments.log_id, 7, 0)
    broker.round()
    assert (ticket.error, ticket.base_offset, ticket.is_settled) == (ErrorCode.NONE, 2, True)
    assert not log.producers.has_open(7), "the guest's marker was folded"
    assert offsets(broker, log) == [0, 1, 2]


def test_data_behind_the_marker_that_ended_its_transaction_is_refused() -> None:
    """Row T16: the commit fails as a whole, and the unchanged rules decide again."""
    stores = Stores()
    broker = stores.broker(1)
    log, other = opened(broker), opened(broker, OTHER, bytes(16))
    send(log, batch(1, 7, 0, 0, transactional=True))
    broker.round()
    late, innocent = send(log, batch(1, 7, 0, 1, transactional=True)), send(other, batch(1))
    guest(stores, log.segments.log_id, 7, 0)
    broker.round()
    assert (late.error, innocent.is_settled) == (ErrorCode.INVALID_TXN_STATE, False)
    broker.round()
    assert innocent.is_settled
    assert offsets(broker, log) == [0, 1]


def test_an_object_that_was_collected_is_put_again() -> None:
    """A broker that paused between its PUT and its commit (ClaimLost)."""
    stores = Stores()
    broker = stores.broker(1, 0)
    log = opened(broker)
    ticket = send(log, batch(1))
    (task,) = broker.rounds.begin()
    put = broker.row_bytes.put

    def collected_once(parts: list[bytes]) -> int:
        object_id = put(parts)
        if object_id == 1:
            assert broker.engine.doomed(-1) == [1]
            del stores.objects[1]
            broker.engine.forget([1])
        return object_id

    broker.row_bytes.put = collected_once
    task.sync()
    broker.rounds.deliver()
    assert ticket.is_settled
    assert list(stores.objects) == [2]


def test_damaged_bytes_are_not_served() -> None:
    stores = Stores()
    broker = stores.broker(1, 0)
    send(opened(broker), batch(1))
    broker.round()
    (number,) = stores.objects
    damaged = bytearray(stores.objects[number])
    damaged[-1] ^= 1
    stores.objects[number] = bytes(damaged)
    successor = stores.broker(2)
    log = opened(successor)
    assert read_batches(log, 0, 1 << 20, UNCOMMITTED).missing is not None
    with pytest.raises(CorruptLogFile, match="CRC-32C"):
        successor.cold.arrive()


def test_records_are_found_by_their_time_in_old_rows_and_in_the_tail() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    send(log, batch(1, timestamp_ms=NOW_MS))
    broker.round()
    successor = stores.broker(2)
    again = opened(successor)
    send(again, batch(1, timestamp_ms=NOW_MS + 10))
    successor.round()
    assert isinstance(offset_for_timestamp(again, NOW_MS, UNCOMMITTED), Missing)
    successor.cold.arrive()
    old, new = (offset_for_timestamp(again, at, UNCOMMITTED) for at in (NOW_MS, NOW_MS + 1))
    assert (old, new) == ((NOW_MS, 0, 1), (NOW_MS + 10, 1, 2))


def test_a_topic_created_again_has_another_log() -> None:
    stores = Stores()
    broker = stores.broker(1)
    send(opened(broker), batch(4))
    broker.round()
    again = opened(broker, TP, bytes(range(1, 17)))
    assert again.log_end_offset == 0
    ticket = send(again, batch(1))
    broker.round()
    assert ticket.base_offset == 0
    for task in broker.logs.delete(str(TP), "gone"):
        task.sync()
    assert [head.next for head in broker.engine.heads()] == [4], "the deleted topic's log is another"


def test_start_offsets_are_kept_in_the_database() -> None:
    """Row L6: what DeleteRecords hid stays hidden."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    for _ in range(2):
        send(log, batch(2))
        broker.round()
    for task in broker.logs.start_targets({str(TP): 3}):
        task.sync()
    assert broker.logs.start_targets({str(TP): 3}) == []
    (head,) = stores.broker(2).engine.heads()
    assert (head.start, head.next) == (3, 4)
    (rows,) = stores.database.rows.values()
    assert [read_header(row.inline or b"").last_offset_delta for row in rows] == [1], "rows below it are deleted"


def test_a_commit_that_a_failover_loses_before_the_rows_of_guests_are_read_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows that came before it were read from the promoted server, which lacks the commit: it was acknowledged."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    send(log, batch(1))
    broker.round()
    guest(stores, log.segments.log_id, 7, 0)
    ticket = send(log, batch(1))
    broker.rounds.engine = stores.world.engine()  # as in a broker: reads have a connection of their own
    for engine in (broker.engine, broker.rounds.engine):
        engine.watch(broker.writer.history)
        engine.slots()
    commit = broker.engine.commit

    def lost(wanted: Commit) -> tuple[int, ...]:
        stores.world.save()
        bases = commit(wanted)
        stores.world.go_back()
        return bases

    monkeypatch.setattr(broker.engine, "commit", lost)
    broker.round()
    assert not ticket.is_settled
    assert broker.fenced == 1
