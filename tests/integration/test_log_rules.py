"""The log's rules as a client meets them, row by row of docs/rules.md (sections A.1, A.3 and A.4)."""

from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import NOW_MS, Wire, batch_of, values_in

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def end_of_epoch(wire: Wire, topic: str, epoch: int) -> tuple[int, int]:
    answer = wire.end_of_epoch(topic, epoch)
    assert answer.error_code == ErrorCode.NONE
    return answer.leader_epoch, answer.end_offset


def test_l11_min_insync_replicas_counts_at_most_the_replicas_there_are(wire: Wire) -> None:
    """KIP-966: since Kafka 4 the effective minimum is no more than the replication factor, which is 1 here."""
    wire.create_topic("anxious", min_insync_replicas="3")
    assert wire.produce("anxious", batch_of(b"x"), acks=-1).error_code == ErrorCode.NONE


def test_l7_log_append_time_is_answered_and_stored(wire: Wire) -> None:
    wire.create_topic("stamped", message_timestamp_type="LogAppendTime")
    stamp = wire.produce("stamped", batch_of(b"x", timestamp_ms=5)).log_append_time_ms
    assert abs(stamp - NOW_MS) < 3_600_000
    found = wire.offset_of("stamped", MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (0, stamp)


def test_l15_old_versions_hear_the_code_without_the_list(wire: Wire) -> None:
    wire.create_topic("keys", cleanup_policy="compact,delete")
    for version in (3, 7, 8):
        answer = wire.produce("keys", batch_of(b"no key"), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert len(answer.record_errors) == (version >= 8)
        assert bool(answer.error_message) == (version >= 8)


def test_l9_kip_390_levels_are_read_from_the_topic(wire: Wire) -> None:
    text = b" ".join(b"%d foxes, %d dogs" % (n * n, n % 97) for n in range(2000))
    for level in ("1", "9"):
        wire.create_topic(f"level{level}", compression_type="gzip", compression_gzip_level=level)
        wire.produce(f"level{level}", batch_of(text))
    loose, tight = (len(wire.fetch(name).records) for name in ("level1", "level9"))
    assert tight < loose < len(text)


def test_l3_delete_records_up_to_the_high_watermark(wire: Wire, topic: str) -> None:
    for n in range(4):
        wire.produce(topic, batch_of(b"%d" % n))
    assert wire.delete_records(topic, 2) == (ErrorCode.NONE, 2)
    assert wire.delete_records(topic, 1) == (ErrorCode.NONE, 2)
    assert wire.delete_records(topic, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert wire.delete_records(topic, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    answer = wire.fetch(topic, 2)
    assert (answer.log_start_offset, values_in(answer)) == (2, [b"2", b"3"])
    assert wire.delete_records(topic, -1) == (ErrorCode.NONE, 4)
    assert wire.offset_of(topic, EARLIEST).offset == wire.offset_of(topic, LATEST).offset == 4


def test_l3_delete_records_needs_a_policy_that_deletes(wire: Wire) -> None:
    for name, policy, code in (
        ("kept", "compact", ErrorCode.POLICY_VIOLATION),
        ("both", "compact,delete", ErrorCode.NONE),
    ):
        wire.create_topic(name, cleanup_policy=policy)
        wire.produce(name, build_batch([(NOW_MS, b"k", b"v", ())]))
        assert wire.delete_records(name, -1)[0] == code


def test_i6_offsets_by_their_names_in_every_version_that_has_them(wire: Wire, topic: str) -> None:
    """KIP-734 and KIP-405: -3 from v7, -4 from v8, -5 from v9, -6 from v11; nothing is tiered here."""
    for _ in range(3):
        wire.produce(topic, batch_of(b"x"))
    wire.delete_records(topic, 1)
    for name, since, offset in (
        (LATEST, 1, 3),
        (EARLIEST, 1, 1),
        (MAX_TIMESTAMP, 7, 1),
        (EARLIEST_LOCAL, 8, 1),
        (LATEST_TIERED, 9, -1),
        (EARLIEST_PENDING_UPLOAD, 11, -1),
    ):
        for version in range(1, 12):
            answer = wire.offset_of(topic, name, version=version)
            if version < since:
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            else:
                assert (answer.error_code, answer.offset) == (ErrorCode.NONE, offset)
    assert wire.offset_of(topic, -7, version=11).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_i6_the_end_covers_what_was_just_acknowledged_without_a_flush(file_broker: BrokerProcess) -> None:
    """Kafka answers acks=1 when the record is below the high watermark of a partition with one replica.

    Here the flush comes after the answer, and whoever asks for the end waits for it: the latest offset in both
    isolation levels, a leader epoch's end, and the high watermark that DeleteRecords stands at.
    """
    with Wire(file_broker.connect()) as wire:
        for number in range(40):
            topic = f"t{number}"
            wire.create_topic(topic)
            assert wire.produce(topic, batch_of(b"a", b"b"), acks=1).error_code == ErrorCode.NONE
            if number % 4 == 3:
                assert wire.delete_records(topic, -1) == (ErrorCode.NONE, 2)
            elif number % 4 == 2:
                assert end_of_epoch(wire, topic, 0) == (0, 2)
            else:
                assert wire.offset_of(topic, LATEST, isolation=number % 4).offset == 2


def test_l10_the_epoch_of_a_log_is_known_before_its_first_record(wire: Wire, topic: str) -> None:
    assert wire.offset_of(topic, EARLIEST).leader_epoch == wire.offset_of(topic, LATEST).leader_epoch == 0
    assert end_of_epoch(wire, topic, 0) == (0, 0)
    for unseen in (7, -1, -2, -(2**31)):
        assert end_of_epoch(wire, topic, unseen) == (-1, -1)
    wire.produce(topic, batch_of(b"x"))
    assert end_of_epoch(wire, topic, 0) == (0, 1)


def test_l10_fetch_12_tells_a_reader_that_the_log_was_cut(wire: Wire, topic: str) -> None:
    """As Kafka orders it: an unknown epoch, then the log's start, then where the epoch ended."""
    for _ in range(3):
        wire.produce(topic, batch_of(b"x"))

    def fetch(offset: int, last_epoch: int) -> Any:
        return wire.fetch(topic, offset, version=12, last_fetched_epoch=last_epoch)

    good = fetch(2, 0)
    assert (good.error_code, values_in(good), good.diverging_epoch) == (ErrorCode.NONE, [b"x"], None)
    cut = fetch(5, 0)
    assert (cut.error_code, values_in(cut)) == (ErrorCode.NONE, [])
    assert (cut.diverging_epoch.epoch, cut.diverging_epoch.end_offset) == (0, 3)
    assert fetch(2, 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    wire.delete_records(topic, 2)
    assert fetch(1, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
