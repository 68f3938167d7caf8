"""What is read of a log for one acquisition: enough for what the member wants, and little more."""

import pytest

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.share.reading import STEP_BYTES, SharedRead, read_for
from tests.unit.log.kit import UNCOMMITTED, batch, over, send, settle

BYTES_MAX = 50 << 20


def written(batches: int, count: int, size_bytes: int) -> PartitionLog:
    log = over(MemoryStore())
    for _ in range(batches):
        send(log, batch(count, value=bytes(size_bytes)))
    settle(log)
    return log


def read(log: PartitionLog, offset: int, records: int, *, at_least_one: bool = True) -> SharedRead:
    return read_for(log, offset, BYTES_MAX, records, UNCOMMITTED, at_least_one=at_least_one)


@pytest.mark.parametrize("offset", [0, 7])
def test_one_record_takes_one_batch(offset: int) -> None:
    """A worker that takes records one by one does not have the broker read thousands of others each time."""
    found = read(written(2000, 1, 100), offset, 1)
    assert found.fetched.batches == [(offset, offset)]


@pytest.mark.parametrize("size_bytes", [1, 100, 1000, 20_000])
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("records", [1, 39, 500])
def test_as_much_is_read_as_is_wanted_whatever_the_size_of_records(size_bytes: int, count: int, records: int) -> None:
    """KIP-932, `max.poll.records`: a fetch brings as many as there are, if the bytes have room for them."""
    log = written(600 // count, count, size_bytes)
    found = read(log, 0, records)
    assert sum(last - first + 1 for first, last in found.fetched.batches) >= min(records, log.log_end_offset)


def test_a_batch_longer_than_the_guess_is_read_where_none_may_exceed_the_bytes_of_the_request() -> None:
    """ReplicaManager.readFromLog: only what exceeds the request's bytes waits, once a response has records."""
    found = read(written(3, 1, STEP_BYTES // 2), 1, 1, at_least_one=False)
    assert found.fetched.batches[0] == (1, 1)
