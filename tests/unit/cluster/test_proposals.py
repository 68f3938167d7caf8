"""Compactions that another program proposes: the owner commits what its own compaction would have done, or refuses."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import trio

from fencepost.broker.cluster.engine import Changed, StoreUnavailable, log_id
from fencepost.broker.cluster.growth.accepting import _facts
from fencepost.broker.cluster.growth.proposals import Computed, Proposal, clean_job, computed, decode, encode
from fencepost.broker.cluster.growth.row_cleaning import RowPlanner
from fencepost.broker.cluster.reading.folding import encode_aborted
from fencepost.broker.cluster.reading.loading import read_indexes
from fencepost.broker.log.compaction.cleaning import CleaningLimits
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.topics import TopicPartition
from tests.kit.growing import aborted, compact, content, growth_of, merge, opened
from tests.kit.shared_store import TOPIC_ID, ObjectsInMemory, StoreBroker, Stores
from tests.kit.sim_engine import SimEngine
from tests.unit.cluster.table_kit import CONFIG, Tables
from tests.unit.log.compaction_kit import HOUR_MS, keyed, records, seen
from tests.unit.log.kit import NOW_MS, TP

LOG = log_id(TOPIC_ID, TP.partition)
OWN_DISABLED = {"log_cleaner_enable": False, "cluster_merge_min_rows": 2}


def proposed(
    stores: Stores, config: LogConfig = CONFIG, now_ms: int = NOW_MS, inline_bytes: int = 0, newest: bool = True
) -> Computed:
    """What a program without a lease computes."""
    engine = stores.world.engine()
    (head,) = (head for head in engine.heads() if head.log == LOG)
    job = clean_job(read_indexes(engine, [head])[LOG], TP, config, CleaningLimits(), now_ms, newest)
    assert job is not None
    planner = RowPlanner(
        engine, ObjectsInMemory(engine, stores.objects), inline_bytes, lambda size: MemoryStore(), rest_per_work=0.0
    )
    found = computed(planner, job)
    assert found is not None
    return found


def answered(stores: Stores, broker: StoreBroker, log: PartitionLog, proposal: Proposal) -> str | None:
    """Propose it, and let the owner answer. Its own compaction is off."""
    number = stores.world.engine().propose(LOG, encode(proposal))
    trio.run(growth_of(broker, log, **OWN_DISABLED).compactions.compact)
    return stores.world.engine().answer_to(number)


def table_of(stores: Stores, seed: int) -> tuple[StoreBroker, PartitionLog]:
    """A log with transactions, tombstones and merged rows; two worlds of one seed have the same."""
    random_ = random.Random(seed)
    tables, broker = Tables(random_), stores.broker(1)
    log = opened(broker, config=CONFIG)
    for _ in range(60):
        tables.write(log)
        if random_.random() < 0.4:
            tables.end(log)
        broker.round()
    tables.end(log)
    broker.round()
    merge(growth_of(broker, log, **OWN_DISABLED))
    return broker, log


@pytest.mark.parametrize("seed", range(8))
def test_the_result_is_that_of_the_brokers_own_compaction(seed: int) -> None:
    """Records, aborted transactions and rows are equal, also for the next broker, and after a second compaction."""
    ours, theirs = Stores(), Stores()
    (broker, log), (other, other_log) = table_of(ours, seed), table_of(theirs, seed)
    now_ms = NOW_MS
    for _ in range(2):
        found = proposed(ours, now_ms=now_ms, inline_bytes=broker.rounds.limits.inline_bytes)
        assert answered(ours, broker, log, decode(LOG, encode(found.proposal))) == "committed"
        compact(growth_of(other, other_log, now_ms=partial(int, now_ms), cluster_merge_min_rows=2))
        for one, of in ((broker, log), (other, other_log)):
            content(one, of)
        assert (records(log), seen(log), aborted(log)) == (records(other_log), seen(other_log), aborted(other_log))
        assert ours.database.rows[LOG] == theirs.database.rows[LOG]
        assert log.segments.cleaned_to == other_log.segments.cleaned_to == found.proposal.cleaned_to
        for one, of in ((broker, log), (other, other_log)):
            for number in range(6):
                of.append(keyed([("late", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
                one.round()
            merge(growth_of(one, of, **OWN_DISABLED))
        now_ms += 30 * HOUR_MS
    table = seen(log)
    successor = ours.broker(2)
    log = opened(successor, config=CONFIG)
    content(successor, log)
    assert seen(log) == table


def appended(stores: Stores, count: int = 12, tp: TopicPartition = TP) -> tuple[StoreBroker, PartitionLog]:
    broker = stores.broker(1)
    log = opened(broker, tp, config=CONFIG)
    for number in range(count):
        log.append(keyed([("a", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    merge(growth_of(broker, log, cluster_merge_min_rows=6, log_cleaner_enable=False))
    return broker, log


def test_a_proposal_that_became_stale_is_refused_and_its_objects_are_collected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stores = Stores()
    broker, log = appended(stores)
    found = proposed(stores)
    (new,) = (one for one in found.proposal.replacements)
    (object_id,) = new.objects
    assert object_id in stores.objects
    compact(growth_of(broker, log, cluster_merge_min_rows=6))  # the broker was quicker
    before = stores.database.rows[LOG]
    answer = answered(stores, broker, log, found.proposal)
    assert answer is not None
    assert "the rows have changed since" in answer
    assert stores.database.rows[LOG] == before
    lines = [line for line in caplog.messages if "is refused" in line]
    assert len(lines) == 1
    assert stores.world.engine().proposed() == []
    stores.world.age(3 * HOUR_MS)
    growth = growth_of(broker, log)
    for _ in range(3):
        trio.run(growth.collect)
        stores.world.age(HOUR_MS)
    assert object_id not in stores.objects
    content(broker, log)
    assert records(log) == [(11, "a", "11")]


def test_rows_that_change_in_the_middle_end_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    """The database compares them once more, in the transaction that replaces them."""
    stores = Stores()
    broker, log = appended(stores)
    found = proposed(stores)
    engine = broker.engine
    assert isinstance(engine, SimEngine)

    def changed(method: str) -> None:
        if method == "replace":
            engine.before = lambda method: None
            raise Changed("merged a moment ago")

    engine.before = changed
    assert answered(stores, broker, log, found.proposal) == "merged a moment ago"
    assert answered(stores, broker, log, found.proposal) == "committed"


def test_a_lost_answer_and_a_takeover_in_the_middle_lose_nothing() -> None:
    """The proposal stays. What was replaced already counts as done; the next owner commits the rest."""
    stores = Stores()
    small = replace(CONFIG, segment_bytes=400)
    broker, log = appended(stores, 40)
    found = proposed(stores, small)
    assert len(found.proposal.replacements) > 1
    number = stores.world.engine().propose(LOG, encode(found.proposal))
    engine = broker.engine
    assert isinstance(engine, SimEngine)

    def lost(method: str) -> None:
        if method == "replace":
            engine.after = lambda method: None
            raise StoreUnavailable("the answer is lost")

    engine.after = lost
    trio.run(growth_of(broker, log, **OWN_DISABLED).compactions.compact)
    assert stores.world.engine().answer_to(number) is None
    broker = stores.broker(2)
    log = opened(broker, config=CONFIG)
    trio.run(growth_of(broker, log, **OWN_DISABLED).compactions.compact)
    assert stores.world.engine().answer_to(number) == "committed"
    content(broker, log)
    assert records(log) == [(39, "a", "39")]


def test_a_proposal_for_an_internal_topic_is_refused() -> None:
    """Else the right to propose compactions would be the right to move offsets of groups and decide transactions."""
    stores = Stores()
    broker, log = appended(stores, tp=TopicPartition("__consumer_offsets", TP.partition))
    answer = answered(stores, broker, log, proposed(stores).proposal)
    assert answer == "the topic is internal: only brokers compact it"
    assert len(records(log)) == 12


def _with_row(proposal: Proposal, **changes: object) -> Proposal:
    (one, *others) = proposal.replacements
    return proposal._replace(replacements=[one._replace(rows=[one.rows[0]._replace(**changes)]), *others])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda proposal: _with_row(proposal, count=1), "ends at 1, its rows at"),
        (lambda proposal: _with_row(proposal, heads=b"x"), "is no segment"),
        (
            lambda proposal: _with_row(proposal, aborted=encode_aborted([AbortedTransaction(7, 0, 3, 3)])),
            "names 1 aborted transactions that are none",
        ),
        (lambda proposal: _with_row(proposal, producer_ids=()), "lacks the last batch of producer 5"),
        (lambda proposal: proposal._replace(read=[]), "it names no rows"),
        (lambda proposal: proposal._replace(replacements=[*proposal.replacements] * 2), "does not replace rows"),
        (lambda proposal: proposal._replace(cleaned_to=1 << 40), "but it ends at"),
        (lambda proposal: proposal._replace(read=[*proposal.read, (1 << 40, 1, proposal.read[0][2])]), "but only rows"),
        (lambda proposal: proposal._replace(replacements=[], read=proposal.read[:1]), None),
    ],
)
def test_what_breaks_a_rule_is_refused(spoil: Callable[[Proposal], Proposal], words: str | None) -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker, config=CONFIG)
    for number in range(12):
        log.append(keyed([("a", str(number))], 5, 0, number), AppendOrigin.CLIENT, NOW_MS)
        broker.round()
    merge(growth_of(broker, log, cluster_merge_min_rows=6, log_cleaner_enable=False))
    proposal = proposed(stores).proposal
    answer = answered(stores, broker, log, spoil(proposal))
    if words is None:
        return
    assert answer is not None
    assert words in answer
    content(broker, log)
    assert len(records(log)) == 12


def test_no_row_from_an_open_transaction_on_may_be_compacted() -> None:
    """Kafka's cleaner stops at the last stable offset (LogCleanerManager.cleanableOffsets), whatever is proposed."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker, config=CONFIG)
    log.append(keyed([("a", "0")], 9, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS)
    for number in range(12):
        log.append(keyed([("a", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    merge(growth_of(broker, log, cluster_merge_min_rows=6, log_cleaner_enable=False))
    assert log.segments.index.folded_to > 0, "rows could be compacted"
    assert _facts(log, log.segments).sealed_to == log.last_stable_offset == 0


def test_other_values_and_deleted_logs_are_answered_too() -> None:
    stores = Stores()
    broker, log = appended(stores)
    engine = stores.world.engine()
    numbers = [engine.propose(LOG, b"{}"), engine.propose(LOG, b'{"format": 1}'), engine.propose(4711, b"")]
    trio.run(growth_of(broker, log, **OWN_DISABLED).compactions.compact)
    answers = [engine.answer_to(number) or "" for number in numbers]
    assert "cannot be read" in answers[0]
    assert "use one version of fencepost" in answers[1]
    assert answers[2] == "the partition was deleted"
    plain = opened(broker, config=LogConfig(retention_ms=-1), topic_id=bytes(16))
    assert plain.config.compacted is False


def test_only_rows_up_to_the_last_full_one_are_compacted() -> None:
    """Merging changes the rows behind it, so a proposal with them would often be stale."""
    stores = Stores()
    config, broker = replace(CONFIG, segment_bytes=6000), stores.broker(1)
    log = opened(broker, config=config)
    for key, size_bytes in (("a", 1), ("b", 1600), ("c", 1), ("d", 1), ("e", 1)):
        value = random.Random(1).randbytes(size_bytes).hex()
        assert not log.append(keyed([(key, value)]), AppendOrigin.COORDINATOR, NOW_MS).error
        broker.round()
    merge(growth_of(broker, log, cluster_merge_min_rows=2, log_cleaner_enable=False))
    assert [row.end for row in log.segments.index.rows] == [1, 2, 5]
    assert proposed(stores, config, newest=False).proposal.end == 2
    assert proposed(stores, config).proposal.end == 5
