"""The rules of the audit one at a time, and on histories made at random: sound ones pass, and no spoilt one does."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_pipelines.auditing.facts import ABORT, COMMIT, DATA, Fact, indexed
from fencepost.spark_pipelines.auditing.findings import AuditReport, PartitionReport, Rule
from fencepost.spark_pipelines.auditing.rules import Bounds, Owner, PartitionAudit, with_owners
from fencepost.spark_pipelines.auditing.strip import CELLS, Strip

_PLAIN = Fact("t", 0, 0, 0, DATA, 0, 0, 1, -1, -1, -1, False, 100, 0, None)
LAST_SEQUENCE = 2**31 - 1


def data(offset: int, count: int = 1, *, pid: int = -1, epoch: int = 0, seq: int = -1, txn: bool = False) -> Fact:
    return _PLAIN._replace(
        position=offset,
        base_offset=offset,
        last_offset=offset + count - 1,
        records=count,
        producer_id=pid,
        producer_epoch=epoch if pid >= 0 else -1,
        base_sequence=seq,
        transactional=txn,
    )


def marker(kind: str, offset: int, pid: int, epoch: int) -> Fact:
    return data(offset, pid=pid, epoch=epoch, txn=True)._replace(kind=kind)


def audited(facts: list[Fact], bounds: Bounds | None = None) -> PartitionReport:
    audit = PartitionAudit("t", 0, bounds or Bounds(0, None))
    for fact in facts:
        audit.take(fact)
    return audit.finish()


def broken(report: PartitionReport) -> set[str]:
    return {fault.rule for fault in report.faults}


def test_sequences_wrap_behind_the_largest_one() -> None:
    """Row P2: 2**31 - 1 is followed by 0."""
    facts = [data(0, 3, pid=1, seq=LAST_SEQUENCE - 4), data(3, 4, pid=1, seq=LAST_SEQUENCE - 1), data(7, pid=1, seq=2)]
    assert not audited(facts).faults
    assert broken(audited([*facts, data(8, 4, pid=1, seq=LAST_SEQUENCE - 1)])) == {Rule.ONCE.value}


def test_epochs_that_rise_begin_at_sequence_zero_and_markers_raise_them() -> None:
    """KIP-890: the marker of a transaction carries the next epoch, with which the producer goes on."""
    facts = [data(0, 2, pid=1, epoch=3, seq=7, txn=True), marker(COMMIT, 2, 1, 4)]
    assert not audited([*facts, data(3, pid=1, epoch=4, seq=0, txn=True), marker(COMMIT, 4, 1, 5)]).faults
    assert broken(audited([*facts, data(3, pid=1, epoch=4, seq=9, txn=True)])) == {Rule.GAPLESS.value}
    assert broken(audited([*facts, data(3, pid=1, epoch=3, seq=9, txn=True)])) == {Rule.FENCED.value}


def test_compaction_explains_holes_between_batches_and_in_them_but_no_duplicate() -> None:
    kept = data(10, 5, pid=1, seq=10)._replace(records=2)
    facts = [data(0, 2, pid=1, seq=0), kept, data(20, pid=1, seq=20)]
    report = audited(facts, Bounds(0, None, compacted=True))
    assert not report.faults
    assert [(hole.first, hole.last) for hole in report.holes] == [(2, 9), (10, 14), (15, 19)]
    assert broken(audited(facts)) == {Rule.DENSE.value, Rule.GAPLESS.value}
    again = [*facts, data(21, pid=1, seq=20)]
    assert broken(audited(again, Bounds(0, None, compacted=True))) == {Rule.ONCE.value}


def test_a_log_that_retention_or_delete_records_shortened_begins_in_the_middle_of_things() -> None:
    """Its first batch may be cut, its producers be known from before, its first marker end what is gone."""
    facts = [
        indexed("t", 0, 0, 2, 30, 52),
        data(48, 4, pid=1, seq=100),
        marker(ABORT, 52, 2, 0),
        data(53, 2, pid=1, seq=104),
    ]
    report = audited(facts, Bounds(50, 55))
    assert not report.faults, report.faults
    assert (report.committed, report.bare_markers) == (4, 1), "offsets 48 and 49 are hidden"
    assert [(hole.first, hole.last) for hole in report.holes] == [(0, 49)]
    assert broken(audited(facts[2:], Bounds(50, 55))) == {Rule.DENSE.value}, "offsets 50 and 51 are nowhere"


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction() -> None:
    """Row I1; the broker was asked before and after it told the end, so what it said must lie about it."""
    facts = [data(0, 2, pid=1, seq=0, txn=True), data(2, 3, pid=2, seq=0, txn=True), data(5)]
    assert audited(facts, Bounds(0, 6, stable=(0, 0))).last_stable_offset == 0
    assert not audited(facts, Bounds(0, 6, stable=(0, 6))).faults
    assert broken(audited(facts, Bounds(0, 6, stable=(6, 6)))) == {Rule.STABLE.value}
    ended = [*facts, marker(COMMIT, 6, 1, 0)]
    assert audited(ended, Bounds(0, 7, stable=(2, 2))).last_stable_offset == 2


def test_an_open_transaction_is_explained_by_its_coordinator_or_hangs() -> None:
    report = audited([data(0, 2, pid=1, epoch=5, seq=0, txn=True)])
    here = frozenset({TopicPartition("t", 0)})
    with_owners(report, {1: Owner("billing", "Ongoing", 5, here)})
    assert not report.faults
    assert report.open[0].why == "transactional.id billing, Ongoing, epoch 5"
    with_owners(report, {})
    assert report.open[0].why == "no transaction coordinator knows this producer id"
    with_owners(report, {1: Owner("billing", "CompleteCommit", 6, frozenset())})
    assert broken(report) == {Rule.CLOSED.value}


def test_what_a_producer_writes_beside_its_open_transaction_is_a_fault() -> None:
    facts = [data(0, pid=1, seq=0, txn=True), data(1, pid=1, seq=1)]
    assert broken(audited(facts)) == {Rule.CLOSED.value}


def test_offsets_that_go_back_and_an_end_that_is_missing_are_faults() -> None:
    assert broken(audited([data(0, 5), data(3, 2)])) == {Rule.DENSE.value}
    assert broken(audited([data(0, 5)], Bounds(0, 9))) == {Rule.DENSE.value}
    assert audited([data(0, 5)], Bounds(0, 4)).notes == ["the log grew to offset 5 during the audit"]


def test_a_report_survives_its_way_from_a_task() -> None:
    report = audited([data(0, 5, pid=1, seq=0, txn=True), data(7, pid=2, seq=0), data(8, pid=2, seq=0)])
    assert report.faults
    assert report.open
    assert PartitionReport.from_json(report.to_json()) == report


def history(seed: int) -> list[Fact]:
    """A sound log of three transactional producers, an idempotent one and one without identity."""
    chance = random.Random(seed)
    offset = 0
    facts: list[Fact] = []
    sequence, epoch, first = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0), dict.fromkeys(range(4), -1)
    for _ in range(chance.randint(5, 60)):
        pid, count = chance.randint(-1, 3), chance.randint(1, 6)
        if pid < 0:
            facts.append(data(offset, count))
        elif pid == 0 or chance.random() < 0.6:
            facts.append(data(offset, count, pid=pid, epoch=epoch[pid], seq=sequence[pid], txn=pid > 0))
            sequence[pid] += count
            first[pid] = offset if first[pid] < 0 and pid > 0 else first[pid]
        elif first[pid] >= 0:
            count, epoch[pid], sequence[pid] = 1, epoch[pid] + 1, 0
            kind = chance.choice((COMMIT, ABORT))
            facts.append(marker(kind, offset, pid, epoch[pid]))
            if kind == ABORT:
                facts.append(indexed("t", 0, 0, pid, first[pid], offset))
            first[pid] = -1
        else:
            continue
        offset += count
    return facts


@given(seed=st.integers(0, 2**32), where=st.floats(0, 1, exclude_max=True))
def test_any_sound_history_passes_and_with_a_batch_lost_or_doubled_none_does(seed: int, where: float) -> None:
    facts = history(seed)
    batches = [number for number, fact in enumerate(facts) if fact.position >= 0]
    end = max((fact.last_offset + 1 for fact in facts), default=0)
    bounds = Bounds(0, end)
    report = audited(facts, bounds)
    assert not report.faults, report.faults
    assert report.committed + report.aborted + report.open_records + report.markers == end
    if not batches:
        return
    victim = batches[int(where * len(batches))]
    lost = facts[:victim] + facts[victim + 1 :]
    assert Rule.DENSE.value in broken(audited(lost, bounds))
    doubled = facts[: victim + 1] + facts[victim:]
    assert Rule.DENSE.value in broken(audited(doubled, bounds))
    fact = facts[victim]
    if fact.kind == DATA and fact.base_sequence >= 0:
        shift = fact.last_offset - fact.base_offset + 1
        renumbered = [
            one._replace(base_offset=one.base_offset + shift, last_offset=one.last_offset + shift)
            for one in [fact, *(one for one in facts[victim + 1 :] if one.position >= 0)]
        ]
        appended = [one for one in facts[: victim + 1] if one.position >= 0] + renumbered
        found = audited(appended, replace(bounds, end=end + shift, listed=0))
        assert Rule.ONCE.value in broken(found), "a retry that was appended a second time has offsets of its own"


def test_the_verdict_calls_offsets_dense_only_where_none_is_missing() -> None:
    """A log that begins late has no gap; one of which compaction removed batches has."""
    cut = audited([data(5, 3)], Bounds(5, 8))
    assert AuditReport("x", [cut]).verdict() == (
        "Exactly once: 3 committed records in 1 partition, offsets dense, no sequence twice,"
        " 0 aborted ranges closed by their markers."
    )
    one_abort = [data(0, pid=1, seq=0, txn=True), marker(ABORT, 1, 1, 0), data(9), indexed("t", 0, 0, 1, 0, 1)]
    gaps = audited(one_abort, Bounds(0, 10, compacted=True))
    assert gaps.holes[0].why == "compaction removed whole batches"
    assert AuditReport("x", [cut, gaps]).verdict() == (
        "Exactly once: 4 committed records in 2 partitions, compaction explains every missing offset,"
        " no sequence twice, 1 aborted range closed by its marker."
    )


@pytest.mark.parametrize("end", [1, CELLS, CELLS + 1, 5 * CELLS, 1_000_003])
def test_a_strip_has_so_many_cells_whatever_the_length_and_loses_no_offset(end: int) -> None:
    strip = Strip(7)
    step = max(1, end // 900)
    for first in range(7, 7 + end, step):
        strip.add("committed", first, min(first + step, 7 + end) - 1)
    cells, width = strip.cells(7 + end)
    assert len(cells) <= CELLS
    assert sum(cell["committed"] for cell in cells) == end
    assert all(cell["committed"] == width for cell in cells[:-1])
