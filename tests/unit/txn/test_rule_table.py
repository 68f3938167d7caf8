"""Every command in every state by every identity: the rules as one table (rows P6, T2, T3, T7, T10, T12, T15, T23).

The table is written from Kafka's rules, not from the code. Three kinds of cell go beyond Kafka, each on purpose:
`again` where Kafka says CONCURRENT_TRANSACTIONS to the retry of the very EndTxn under way; `same` and the PF of
older, future and foreign identities of InitProducerId over an open transaction, which Kafka aborts before it looks.
"""

from dataclasses import replace

import pytest

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.txn import machine
from fencepost.coordinator.txn.commands import (
    AddPartitions,
    Answer,
    Command,
    Complete,
    EndTxn,
    Expire,
    InitProducerId,
    TimeOut,
    VerifyPartitions,
)
from fencepost.coordinator.txn.state import (
    DEAD,
    PHASES,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Empty,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    TxnState,
)
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, P1
from tests.unit.txn.states import ABORTED, ABORTING, COMMITTED, COMMITTING, EMPTY, EPOCH, FRESH, NOW, ONGOING, PID, TX

STATES: tuple[TxnState, ...] = (DEAD, EMPTY, ONGOING, COMMITTING, ABORTING, COMMITTED, ABORTED)
SHOWN = {
    "none": None,
    "current": (PID, EPOCH),
    "previous": (PID, EPOCH - 1),  # the one that this very client held before (lastProducerEpoch)
    "older": (PID, EPOCH - 2),
    "future": (PID, EPOCH + 1),
    "foreign": (8, EPOCH),
}
CODES = {
    "MAP": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "PF": ErrorCode.PRODUCER_FENCED,
    "CT": ErrorCode.CONCURRENT_TRANSACTIONS,
    "ITS": ErrorCode.INVALID_TXN_STATE,
    "ok": ErrorCode.NONE,  # nothing is written
}
TABLE = """
command     shown     Dead   Empty  Ongoing  PrepareCommit  PrepareAbort  CompleteCommit  CompleteAbort
add         current   MAP    begin  grow     CT             CT            begin           begin
add         previous  MAP    PF     PF       PF             PF            PF              PF
add         older     MAP    PF     PF       PF             PF            PF              PF
add         future    MAP    PF     PF       PF             PF            PF              PF
add         foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
add-tv2     current   MAP    begin  grow     CT             CT            begin           begin
add-tv2     previous  MAP    PF     PF       PF             PF            PF              PF
add-tv2     older     MAP    PF     PF       PF             PF            PF              PF
add-tv2     future    MAP    PF     PF       PF             PF            PF              PF
add-tv2     foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
verify      current   MAP    lacks  half     CT             CT            lacks           lacks
verify      previous  MAP    PF     PF       PF             PF            PF              PF
verify      older     MAP    PF     PF       PF             PF            PF              PF
verify      future    MAP    PF     PF       PF             PF            PF              PF
verify      foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
commit      current   MAP    ITS    commit   again          ITS           ok              ITS
commit      previous  MAP    PF     PF       PF             PF            PF              PF
commit      older     MAP    PF     PF       PF             PF            PF              PF
commit      future    MAP    PF     PF       PF             PF            PF              PF
commit      foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
abort       current   MAP    ITS    abort    ITS            again         ITS             ok
abort       previous  MAP    PF     PF       PF             PF            PF              PF
abort       older     MAP    PF     PF       PF             PF            PF              PF
abort       future    MAP    PF     PF       PF             PF            PF              PF
abort       foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
commit-tv2  current   MAP    ITS    commit+  CT             CT            ITS             ITS
commit-tv2  previous  MAP    PF     PF       again          CT            ok              PF
commit-tv2  older     MAP    PF     PF       CT             CT            PF              PF
commit-tv2  future    MAP    PF     PF       CT             CT            PF              PF
commit-tv2  foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
abort-tv2   current   MAP    abort+ abort+   CT             CT            abort+          abort+
abort-tv2   previous  MAP    PF     PF       CT             again         ITS             ok
abort-tv2   older     MAP    PF     PF       CT             CT            PF              PF
abort-tv2   future    MAP    PF     PF       CT             CT            PF              PF
abort-tv2   foreign   MAP    MAP    MAP      MAP            MAP           MAP             MAP
init        none      first  bump   fence    CT             CT            bump            bump
init        current   first  bump   fence    CT             CT            bump            bump
init        previous  first  repeat same     CT             CT            repeat          repeat
init        older     first  PF     PF       CT             CT            PF              PF
init        future    first  PF     PF       CT             CT            PF              PF
init        foreign   first  PF     PF       PF             PF            PF              PF
keep        none      first  bump   keep     CT             CT            bump            bump
keep        current   first  bump   keep     CT             CT            bump            bump
keep        previous  first  repeat PF       CT             CT            repeat          repeat
keep        older     first  PF     PF       CT             CT            PF              PF
keep        future    first  PF     PF       CT             CT            PF              PF
keep        foreign   first  PF     PF       PF             PF            PF              PF
timeout     current   ok     ok     fence    ok             ok            ok              ok
timeout     previous  ok     ok     ok       ok             ok            ok              ok
timeout     older     ok     ok     ok       ok             ok            ok              ok
timeout     future    ok     ok     ok       ok             ok            ok              ok
timeout     foreign   ok     ok     ok       ok             ok            ok              ok
complete    none      never  never  never    done           done          never           never
expire      none      ok     gone   ok       ok             ok            gone            gone
expire-late none      ok     ok     ok       ok             ok            ok              ok
"""
_, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [(row[0], row[1], state, row[2 + number]) for row in ROWS for number, state in enumerate(STATES)]
SERVER_VERSIONS = (0, 1, 2)


def made(command: str, shown: str, state: TxnState) -> Command:
    """The command of a row, by the identity of that row."""
    identity = SHOWN[shown]
    producer_id, epoch = identity or (-1, -1)
    both = frozenset({P0, P1})
    match command.split("-"):
        case ["add", *tv2]:
            return AddPartitions(producer_id, epoch, both, 2 if tv2 else 0)
        case ["verify"]:
            return VerifyPartitions(producer_id, epoch, both)
        case [("commit" | "abort") as verb, *tv2]:
            return EndTxn(producer_id, epoch, verb == "commit", 2 if tv2 else 0)
        case ["init"]:
            return InitProducerId(30_000, identity, FRESH)
        case ["keep"]:
            return InitProducerId(30_000, identity, FRESH, keep_prepared=True)
        case ["timeout"]:
            return TimeOut(producer_id, epoch)
        case ["complete"]:
            return Complete()
        case ["expire"]:
            return Expire(0 if isinstance(state, Dead) else state.updated_ms)
        case _:
            return Expire(1)


def outcome(decision: Decision, state: TxnState, server_version: int, command: Command) -> str:  # type: ignore[type-arg]
    """What a decision amounts to, in the words of the table."""
    answer = decision.reply
    assert isinstance(answer, Answer)
    identity = (answer.producer_id, answer.epoch)
    records = [record.state for record in decision.log]
    assert len(records) <= 1
    if not records:
        return _without_record(answer, identity, state)
    (after,) = records
    match after:
        case Dead():
            return "gone"
        case Empty():
            assert identity == (after.producer.producer_id, after.producer.epoch)
            return {(FRESH, 0): "first", (PID, EPOCH + 1): "bump", (PID, EPOCH): "repeat"}[identity]
        case Ongoing():
            assert after.producer == state.producer  # type: ignore[union-attr]
            if after.is_kept:
                assert (identity, answer.ongoing) == ((PID, EPOCH + 1), (PID, EPOCH))
                return "keep"
            assert after.partitions == {P0, P1}
            return "grow" if isinstance(state, Ongoing) else "begin"
        case CompleteCommit() | CompleteAbort():
            assert isinstance(after, CompleteCommit) == isinstance(state, PrepareCommit)
            return "done"
        case PrepareCommit() | PrepareAbort():
            return _prepared(after, answer, identity, server_version, command)


def _without_record(answer: Answer, identity: tuple[int, int], state: TxnState) -> str:
    if answer.missing:
        return "lacks" if answer.missing == {P0, P1} else "half"
    if answer.after_markers:
        assert identity == (PID, EPOCH)
        return "again"
    if answer.error is ErrorCode.NONE and isinstance(state, Ongoing) and identity == (PID, EPOCH):
        return "same"
    assert answer.error is not ErrorCode.NONE or identity in ((-1, -1), (PID, EPOCH)), "NONE carries what is stored"
    return next(word for word, code in CODES.items() if code is answer.error)


def _prepared(
    after: PrepareCommit | PrepareAbort,
    answer: Answer,
    identity: tuple[int, int],
    server_version: int,
    command: Command,
) -> str:
    verb = "commit" if isinstance(after, PrepareCommit) else "abort"
    if isinstance(command, EndTxn):
        bumped = command.client_version == 2
        assert after.producer.epoch == (EPOCH + 1 if bumped else EPOCH)
        assert identity == (PID, after.producer.epoch)
        assert after.client_version == command.client_version
        return f"{verb}+" if bumped else verb
    assert verb == "abort"
    assert (after.producer.epoch, after.client_version) == (EPOCH + 1, 2 if server_version == 2 else 0)
    wanted = ErrorCode.NONE if isinstance(command, TimeOut) else ErrorCode.CONCURRENT_TRANSACTIONS
    assert answer == Answer(wanted)
    return "fence"


@pytest.mark.parametrize(
    ("command", "shown", "state", "expected"), CELLS, ids=[f"{c[0]}-{c[1]}-{c[2].name}" for c in CELLS]
)
def test_the_table(command: str, shown: str, state: TxnState, expected: str) -> None:
    for server_version in SERVER_VERSIONS:
        asked = made(command, shown, state)
        if expected == "never":
            with pytest.raises(AssertionError, match="nothing to complete"):
                machine.decide(TX, state, asked, NOW, server_version)
            continue
        decision = machine.decide(TX, state, asked, NOW, server_version)
        assert outcome(decision, state, server_version, asked) == expected, f"transaction.version {server_version}"


def test_the_table_is_whole() -> None:
    """Each phase has its column, and each command meets each identity that it can show."""
    assert {type(state) for state in STATES} == set(PHASES)
    assert [len(row) for row in ROWS] == [2 + len(STATES)] * len(ROWS)
    commands = {row[0] for row in ROWS}
    alone = {"complete", "expire", "expire-late"}
    told = {(row[0], row[1]) for row in ROWS}
    for command in commands - alone:
        for shown in set(SHOWN) - {"none"}:
            assert (command, shown) in told
    assert {("init", "none"), ("keep", "none")} <= told


@pytest.mark.parametrize("state", STATES[1:], ids=lambda state: state.name)
def test_a_newcomers_bump_fences_previous_too(state: TxnState) -> None:
    """Row P6: without lastProducerEpoch (-1) `previous` is a stranger like `older`."""
    assert not isinstance(state, Dead)
    strange = replace(state, producer=replace(state.producer, last_epoch=-1))
    decision = machine.decide(TX, strange, InitProducerId(30_000, (PID, EPOCH - 1)), NOW, 2)
    decided = isinstance(state, PrepareCommit | PrepareAbort)
    assert decision.reply == Answer(ErrorCode.CONCURRENT_TRANSACTIONS if decided else ErrorCode.PRODUCER_FENCED)
