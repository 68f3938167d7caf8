"""Records of `__transaction_state` in Kafka's own bytes (row T14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.txn import codec
from fencepost.coordinator.txn.state import (
    DEAD,
    CompleteAbort,
    CompleteCommit,
    Empty,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    Producer,
    TxnRecord,
    TxnState,
)
from fencepost.protocol.topics import TopicPartition

KEY = "0000" + "0004" + b"tx-1".hex()
PARTITIONS = frozenset({TopicPartition("a", 2), TopicPartition("a", 0), TopicPartition("b", 1)})
PRODUCER = Producer(1000, 5, 1000)

V0_FIXED = "00000000000003e8" + "0005" + "0000ea60"
V0_PARTITIONS = (
    "00000002" + "0001" + "61" + "00000002" + "00000000" + "00000002" + "0001" + "62" + "00000001" + "00000001"
)
V1_PARTITIONS = "03" + "0261" + "03" + "00000000" + "00000002" + "00" + "0262" + "02" + "00000001" + "00"
TIMES = "000000000000000b" + "000000000000000a"
PREVIOUS_TAG = "00" + "08" + "00000000000003e8"

GOLDEN = [
    # server version, state, value
    (0, Empty(PRODUCER, 60_000, 11), "0000" + V0_FIXED + "00" + "ffffffff" + "000000000000000b" + "ffffffffffffffff"),
    (0, Ongoing(PRODUCER, 60_000, PARTITIONS, 10, 11), "0000" + V0_FIXED + "01" + V0_PARTITIONS + TIMES),
    (0, CompleteAbort(PRODUCER, 60_000, 10, 11), "0000" + V0_FIXED + "05" + "00000000" + TIMES),
    (
        2,
        Empty(PRODUCER, 60_000, 11),
        "0001" + V0_FIXED + "00" + "00" + "000000000000000b" + "ffffffffffffffff" + "01" + PREVIOUS_TAG,
    ),
    (
        2,
        Ongoing(PRODUCER, 60_000, PARTITIONS, 10, 11, 2),
        "0001" + V0_FIXED + "01" + V1_PARTITIONS + TIMES + "02" + PREVIOUS_TAG + "02" + "02" + "0002",
    ),
    (
        2,
        CompleteCommit(PRODUCER, 60_000, 10, 11, 2),
        "0001" + V0_FIXED + "04" + "01" + TIMES + "02" + PREVIOUS_TAG + "02" + "02" + "0002",
    ),
    (
        2,
        PrepareCommit(Producer(1000, 32767, 1000, 32766), 60_000, PARTITIONS, 10, 11, 2, 2000),
        "0001"
        + "00000000000003e8"
        + "7fff"
        + "0000ea60"
        + "02"
        + V1_PARTITIONS
        + TIMES
        + "04"
        + PREVIOUS_TAG
        + ("01" + "08" + "00000000000007d0")
        + ("02" + "02" + "0002")
        + ("e807" + "02" + "7ffe"),
    ),
    (
        0,
        PrepareAbort(Producer(1000, 5, 1000, 4), 60_000, frozenset(), 10, 11, 2, 2000, 3),
        "0001"
        + V0_FIXED
        + "03"
        + "01"
        + TIMES
        + "05"
        + PREVIOUS_TAG
        + ("01" + "08" + "00000000000007d0")
        + ("02" + "02" + "0002")
        + ("03" + "02" + "0003")
        + ("e807" + "02" + "0004"),
    ),
]


@pytest.mark.parametrize(("server_version", "state", "value"), GOLDEN)
def test_bytes_are_kafkas(server_version: int, state: TxnState, value: str) -> None:
    """Key: version 0 and a plain string. Value: v0, or v1 with tags 0 to 3 and our own 1000."""
    key, encoded = codec.encode(TxnRecord("tx-1", state), server_version)
    assert (key or b"").hex() == KEY
    assert (encoded or b"").hex() == value
    decoded = codec.decode(key, encoded)
    if encoded is not None and encoded[1] == 1:
        assert decoded == TxnRecord("tx-1", state)


def test_an_id_that_is_forgotten_is_a_tombstone() -> None:
    key, value = codec.encode(TxnRecord("tx-1", DEAD), 2)
    assert (key or b"").hex() == KEY
    assert value is None
    assert codec.decode(key, None) == TxnRecord("tx-1", DEAD)


def test_v0_forgets_only_what_old_clients_do_not_need() -> None:
    """Row P6: across a restart a v0 record fences a KIP-360 retry, as in Kafka."""
    state = Empty(Producer(1000, 5, 1000, 4), 60_000, 11)
    key, value = codec.encode(TxnRecord("tx-1", state), 0)
    assert codec.decode(key, value) == TxnRecord("tx-1", Empty(Producer(1000, 5), 60_000, 11))


def test_tags_of_a_later_kafka_are_passed_over() -> None:
    """Row T21, KIP-915: later versions add tagged fields only."""
    state = Empty(PRODUCER, 60_000, 11)
    _, value = codec.encode(TxnRecord("tx-1", state), 2)
    assert value is not None
    later = value[:-11] + bytes([2]) + value[-10:] + bytes([9, 1, 42])
    assert codec.decode(bytes.fromhex(KEY), later) == TxnRecord("tx-1", state)


def test_a_key_of_a_later_kind_is_not_ours() -> None:
    assert codec.decode(bytes.fromhex("0001" + "0000"), b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (bytes.fromhex(KEY)[:-1], b""),
        (bytes.fromhex(KEY), b""),
        (bytes.fromhex(KEY), b"\0\2" + bytes(40)),
        (bytes.fromhex(KEY), b"\0\1" + bytes(10)),
        (bytes.fromhex(KEY), bytes.fromhex("0000" + V0_FIXED + "06" + "00000000" + TIMES)),
        (bytes.fromhex(KEY), bytes.fromhex("0000" + V0_FIXED + "f0" + "00000000" + TIMES)),
        (bytes.fromhex(KEY), bytes.fromhex("0000" + V0_FIXED + "05" + "00000000" + TIMES + "00")),
    ],
)
def test_what_can_not_be_read_is_not_guessed_at(key: bytes | None, value: bytes) -> None:
    with pytest.raises(codec.UnreadableRecord):
        codec.decode(key, value)


int16 = st.integers(-1, 32767)
int64 = st.integers(-1, 2**63 - 1)
moments = st.integers(0, 2**53)
producers = st.builds(Producer, st.integers(0, 2**63 - 1), st.integers(0, 32767), int64, int16)
partitions = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "ü" * 83]), st.integers(0, 2**31 - 1)), max_size=6
)
timeouts = st.integers(1, 2**31 - 1)
versions = st.integers(0, 2)
prepared = (producers, timeouts, partitions, moments, moments, versions)
states: st.SearchStrategy[TxnState] = st.one_of(
    st.just(DEAD),
    st.builds(Empty, producers, timeouts, moments, versions),
    st.builds(Ongoing, *prepared),
    st.builds(PrepareCommit, *prepared),
    st.builds(PrepareCommit, *prepared, st.integers(0, 2**63 - 1), int16),
    st.builds(PrepareAbort, *prepared),
    st.builds(PrepareAbort, *prepared, st.integers(0, 2**63 - 1), int16),
    st.builds(CompleteCommit, producers, timeouts, moments, moments, versions),
    st.builds(CompleteAbort, producers, timeouts, moments, moments, versions),
)


@given(transactional_id=st.text(min_size=1, max_size=60), state=states, server_version=st.integers(1, 2))
def test_every_state_comes_back_whole(transactional_id: str, state: TxnState, server_version: int) -> None:
    record = TxnRecord(transactional_id, state)
    key, value = codec.encode(record, server_version)
    assert codec.decode(key, value) == record
