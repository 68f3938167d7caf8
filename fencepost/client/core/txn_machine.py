"""What a transactional producer may do next, and what every answer means: one machine, values in and values out.

    NEW --open--> STARTING --answered--> READY --begin--> OPEN --commit--> COMMITTING --answered--> READY
                   ^  ^                                    | |                |    |
                   |  |                                    | '--abort--> ABORTING  '-no answer-> UNKNOWN
                   |  '---- a new epoch is needed ----- STALE <-no answer---'|         recover: COMMITTING again
                   |                                    ^                    v
                   '------------------------------------'------------------ READY
                                     OPEN --prepare--> PREPARED --complete--> COMPLETING --answered--> READY
    Wherever somebody newer shows itself or a right is missing: BROKEN.

| phase      | what is open at the coordinator           | what may follow                                    |
|------------|-------------------------------------------|----------------------------------------------------|
| NEW        | whatever a predecessor left               | Open                                               |
| STARTING   | nothing, once InitProducerId is answered  | its answer, GiveUp                                 |
| READY      | nothing                                   | Begin, Recover                                     |
| OPEN       | a transaction, once something `wrote`     | Wrote, Doubted, Commit, Abort, Prepare             |
| COMMITTING | a transaction, or it has just committed   | the answer, GiveUp                                 |
| ABORTING   | a transaction, or it has just aborted     | the answer, GiveUp                                 |
| STALE      | perhaps one that cannot commit any more  | Recover (under TV2 a second abort, else a new epoch)|
| UNKNOWN    | one that commits, has committed, or has been aborted by its timeout | Recover                  |
| PREPARED   | one that waits for its outcome (KIP-939)  | Complete                                           |
| COMPLETING | the same                                  | the answer, GiveUp                                 |
| BROKEN     | not ours any more                         |                                                    |

Rules that the table rests on:

- Under TV2 (KIP-890) each EndTxn bumps the epoch, so (producer id, epoch) names one transaction and EndTxn may be
  asked again as often as needed: a commit that has happened is answered alike, a late copy meets a higher epoch.
- Under TV1 consecutive transactions share their epoch and a late copy would end the next one (KAFKA-17754). So after
  any request that may still be on its way (`doubt`) a new epoch is taken, where the coordinator knows how (KIP-360,
  `bumps`).
- A commit that is refused as fenced was perhaps only timed out (KIP-588). Under TV2 the abort of the same epoch tells,
  and disturbs nobody: it is answered if the coordinator aborted, and refused if somebody newer is there. Under TV1
  Kafka fences both for good, and InitProducerId with a stale identity would abort the newer one's transaction: it is
  not asked.
- Once a commit was sent without an answer (`asked`), only an answer to it, or to the abort after it, says what became
  of the transaction. Until then the outcome is UNKNOWN, and RECOVER goes on asking.
"""

from dataclasses import replace
from typing import assert_never

from fencepost.client.core.txn_errors import INDEFINITE, TABLE, Meaning
from fencepost.client.core.txn_state import (
    NO_PRODUCER,
    Answer,
    Anything,
    AskEnd,
    AskInit,
    Begin,
    Complete,
    Event,
    NoAnswer,
    Outcome,
    Phase,
    TakenOver,
    Then,
    Told,
    TxnState,
)
from fencepost.protocol.errors import ErrorCode


class Misuse(Exception):
    """The program asked for something that does not follow; `phase` tells where the producer stands."""

    def __init__(self, phase: Phase, what: str) -> None:
        super().__init__(f"{what} while {phase.value}")
        self.phase = phase


def step(state: TxnState, event: Anything) -> tuple[TxnState, Then]:
    """The state after `event`, and what is to be asked, or told, next. Raises Misuse. Pure."""
    match event:
        case Event():
            return _wanted(state, event)
        case Begin():
            _only(state, "begin", Phase.READY)
            return replace(
                state, phase=Phase.OPEN, tv2=event.tv2, bumps=event.bumps, begun=False, doubt=False, asked=False
            ), None
        case TakenOver():
            phase = Phase.PREPARED if event.prepared else Phase.READY
            return replace(state, phase=phase, producer=event.producer, tv2=True), Told(Outcome.READY)
        case Complete():
            _only(state, "complete", Phase.PREPARED)
            return replace(state, phase=Phase.COMPLETING, commit=event.commit), AskEnd(
                state.producer, event.commit, tv2=True
            )
        case Answer():
            return _answered(state, event)
        case NoAnswer():
            return _unanswered(state, event.sent)
        case _:
            assert_never(event)


def _only(state: TxnState, what: str, *phases: Phase) -> None:
    if state.phase not in phases:
        raise Misuse(state.phase, what)


def _wanted(state: TxnState, event: Event) -> tuple[TxnState, Then]:
    match event:
        case Event.OPEN:
            _only(state, "open", Phase.NEW)
            return _start(state, Outcome.READY)
        case Event.WROTE | Event.DOUBTED:
            if state.phase not in (Phase.OPEN, Phase.PREPARED):
                return state, None  # of a request that outlived its transaction: the end has reckoned with it
            return replace(state, begun=True, doubt=state.doubt or event is Event.DOUBTED), None
        case Event.COMMIT:
            _only(state, "commit", Phase.OPEN)
            if not state.begun:
                return replace(state, phase=Phase.READY), Told(Outcome.COMMITTED)
            return replace(state, phase=Phase.COMMITTING), AskEnd(state.producer, True, state.tv2)
        case Event.ABORT:
            _only(state, "abort", Phase.OPEN)
            if not state.begun:
                return replace(state, phase=Phase.READY), Told(Outcome.ABORTED)
            return _abort(state, Outcome.ABORTED)
        case Event.PREPARE:
            _only(state, "prepare", Phase.OPEN)
            return replace(state, phase=Phase.PREPARED), None
        case Event.RECOVER:
            return _recover(state)
        case Event.GIVE_UP:
            return _gave_up(state)
        case _:
            assert_never(event)


def _start(state: TxnState, aim: Outcome) -> tuple[TxnState, Then]:
    return replace(state, phase=Phase.STARTING, aim=aim), AskInit(state.producer)


def _abort(state: TxnState, aim: Outcome) -> tuple[TxnState, Then]:
    return replace(state, phase=Phase.ABORTING, aim=aim), AskEnd(state.producer, False, state.tv2)


def _recover(state: TxnState) -> tuple[TxnState, Then]:
    match state.phase:
        case Phase.READY:
            return state, Told(Outcome.READY)
        case Phase.NEW:
            return _start(state, Outcome.READY)
        case Phase.UNKNOWN:
            return replace(state, phase=Phase.COMMITTING), AskEnd(state.producer, True, state.tv2)
        case Phase.STALE:
            if state.begun and (state.tv2 or not state.bumps):
                return _abort(state, Outcome.READY)
            if state.bumps:
                return _start(state, Outcome.READY)
            return _rest(state, Outcome.READY)
        case _:
            raise Misuse(state.phase, "recover")


def _rest(state: TxnState, outcome: Outcome, phase: Phase = Phase.READY) -> tuple[TxnState, Then]:
    return replace(state, phase=phase, begun=False, doubt=False, asked=False), Told(outcome)


def _broken(state: TxnState, meaning: Meaning, code: ErrorCode) -> tuple[TxnState, Then]:
    """No transaction can follow; where a commit may have happened, that is what counts."""
    why = {Meaning.FENCED: Outcome.FENCED, Meaning.FORBIDDEN: Outcome.FORBIDDEN}.get(meaning, Outcome.FATAL)
    told = Outcome.UNKNOWN if state.asked else why
    return replace(state, phase=Phase.BROKEN), Told(told, code)


def _answered(state: TxnState, answer: Answer) -> tuple[TxnState, Then]:
    match state.phase:
        case Phase.STARTING:
            return _initialised(state, answer)
        case Phase.COMMITTING:
            return _commit_answered(state, answer)
        case Phase.ABORTING:
            return _abort_answered(state, answer)
        case Phase.COMPLETING:
            return _completed(state, answer)
        case _:
            raise Misuse(state.phase, "a response")


def _initialised(state: TxnState, answer: Answer) -> tuple[TxnState, Then]:
    match TABLE["InitProducerId"][answer.code]:
        case Meaning.DONE:
            return _rest(replace(state, producer=answer.producer), state.aim)
        case Meaning.AGAIN | Meaning.MOVED:
            return state, AskInit(state.producer)
        case meaning:
            return _broken(state, meaning, answer.code)


def _commit_answered(state: TxnState, answer: Answer) -> tuple[TxnState, Then]:
    code = answer.code
    match TABLE["EndTxn"][code]:
        case Meaning.DONE:
            return _ended(state, answer, Outcome.COMMITTED, now=False)
        case Meaning.AGAIN | Meaning.MOVED:
            lost = code in INDEFINITE
            again = replace(state, asked=state.asked or lost, doubt=state.doubt or lost)
            return again, AskEnd(state.producer, True, state.tv2)
        case Meaning.FENCED as meaning if not state.tv2:
            return _broken(state, meaning, code)
        case Meaning.FENCED | Meaning.NOT_OPEN if state.tv2:
            return _abort(state, Outcome.EXPIRED)
        case Meaning.NOT_OPEN:
            return _start(state, Outcome.EXPIRED) if state.bumps else _rest(state, Outcome.EXPIRED)
        case Meaning.LOST_IDENTITY if state.bumps:
            return _start(state, Outcome.UNKNOWN if state.asked else Outcome.EXPIRED)
        case Meaning.FORBIDDEN | Meaning.FATAL | Meaning.LOST_IDENTITY as meaning:
            return _broken(state, meaning, code)
        case _:
            if state.asked:
                return replace(state, phase=Phase.UNKNOWN), Told(Outcome.UNKNOWN, code)
            return replace(state, phase=Phase.OPEN), Told(Outcome.REFUSED, code)


def _ended(state: TxnState, answer: Answer, outcome: Outcome, *, now: bool) -> tuple[TxnState, Then]:
    """EndTxn was answered. TV2 gave the next epoch; under TV1 one is needed where something may still arrive (T7).

    `now`: take it before the outcome is told; otherwise before the next transaction begins.
    """
    if state.tv2 and answer.producer not in (NO_PRODUCER, state.producer):
        return _rest(replace(state, producer=answer.producer), outcome)
    if not (state.doubt and state.bumps):
        return _rest(state, outcome)
    settled = replace(state, begun=False, asked=False)
    return _start(settled, outcome) if now else (replace(settled, phase=Phase.STALE), Told(outcome))


def _abort_answered(state: TxnState, answer: Answer) -> tuple[TxnState, Then]:
    code = answer.code
    match TABLE["EndTxn"][code]:
        case Meaning.DONE:
            return _ended(state, answer, state.aim, now=True)
        case Meaning.FENCED | Meaning.FORBIDDEN | Meaning.FATAL as meaning:
            return _broken(state, meaning, code)
        case Meaning.NOT_OPEN | Meaning.LOST_IDENTITY:
            # Nothing of ours is open. After a commit that nobody answered this may mean that it was carried out.
            aim = Outcome.UNKNOWN if state.asked else state.aim
            return _start(state, aim) if state.bumps else _rest(state, aim)
        case _:
            return replace(state, doubt=state.doubt or code in INDEFINITE), AskEnd(state.producer, False, state.tv2)


def _completed(state: TxnState, answer: Answer) -> tuple[TxnState, Then]:
    match TABLE["EndTxn"][answer.code]:
        case Meaning.DONE:
            producer = state.producer if answer.producer == NO_PRODUCER else answer.producer
            outcome = Outcome.COMMITTED if state.commit else Outcome.ABORTED
            return _rest(replace(state, producer=producer), outcome)
        case Meaning.AGAIN | Meaning.MOVED | Meaning.ABORT:
            return state, AskEnd(state.producer, state.commit, tv2=True)
        case meaning:
            return _broken(state, meaning, answer.code)


def _unanswered(state: TxnState, sent: bool) -> tuple[TxnState, Then]:
    match state.phase:
        case Phase.STARTING:
            return state, AskInit(state.producer)
        case Phase.COMMITTING:
            lost = replace(state, asked=state.asked or sent, doubt=state.doubt or sent)
            return lost, AskEnd(state.producer, True, state.tv2)
        case Phase.ABORTING:
            return replace(state, doubt=state.doubt or sent), AskEnd(state.producer, False, state.tv2)
        case Phase.COMPLETING:
            return state, AskEnd(state.producer, state.commit, tv2=True)
        case _:
            raise Misuse(state.phase, "a lost response")


def _gave_up(state: TxnState) -> tuple[TxnState, Then]:
    match state.phase:
        case Phase.STARTING if state.producer == NO_PRODUCER:
            return replace(state, phase=Phase.NEW), Told(Outcome.FAILED)
        case Phase.STARTING:
            # What the transaction came to is known; only the new epoch is missing.
            aim = Outcome.FAILED if state.aim is Outcome.READY else state.aim
            return replace(state, phase=Phase.STALE, asked=False), Told(aim)
        case Phase.COMMITTING if not state.asked:
            return replace(state, phase=Phase.OPEN), Told(Outcome.REFUSED)
        case Phase.COMMITTING:
            return replace(state, phase=Phase.UNKNOWN), Told(Outcome.UNKNOWN)
        case Phase.ABORTING if state.asked:
            return replace(state, phase=Phase.UNKNOWN), Told(Outcome.UNKNOWN)
        case Phase.ABORTING:
            # It cannot commit any more, whether or not the coordinator has heard of it.
            aim = Outcome.FAILED if state.aim is Outcome.READY else state.aim
            return replace(state, phase=Phase.STALE), Told(aim)
        case Phase.COMPLETING:
            return replace(state, phase=Phase.PREPARED), Told(Outcome.FAILED)
        case _:
            raise Misuse(state.phase, "give up")
