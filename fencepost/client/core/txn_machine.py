"""The state machine of a transactional producer: what may come next, and what every response means. Pure.

    NEW --open--> STARTING --answered--> READY --begin--> OPEN --commit--> COMMITTING --answered--> READY
                   ^  ^                                    | |                |    |
                   |  |                                    | '--abort--> ABORTING  '-no response-> UNKNOWN
                   |  '---- a new epoch is needed ----- STALE <-no response---'|         recover: COMMITTING again
                   |                                    ^                    v
                   '------------------------------------'------------------ READY
                                     OPEN --prepare--> PREPARED --complete--> COMPLETING --answered--> READY
    Wherever a newer producer shows itself or a permission is missing: BROKEN.

| phase      | what is open at the coordinator           | what may follow                                    |
|------------|-------------------------------------------|----------------------------------------------------|
| NEW        | what a predecessor left                   | Open                                               |
| STARTING   | nothing, once InitProducerId is answered  | its response, GiveUp                                 |
| READY      | nothing                                   | Begin, Recover                                     |
| OPEN       | a transaction, once something `wrote`     | Wrote, Doubted, Commit, Abort, Prepare             |
| COMMITTING | a transaction, or it has just committed   | the response, GiveUp                                 |
| ABORTING   | a transaction, or it has just aborted     | the response, GiveUp                                 |
| STALE      | perhaps one that cannot commit any more  | Recover (under TV2 a second abort, else a new epoch)|
| UNKNOWN    | one that commits, has committed, or has been aborted by its timeout | Recover                  |
| PREPARED   | one that waits for its outcome (KIP-939)  | Complete                                           |
| COMPLETING | the same                                  | the response, GiveUp                                 |
| BROKEN     | not this producer's any more              |                                                    |

Rules that the table rests on:

- Under TV2 (KIP-890) each EndTxn bumps the epoch, so (producer id, epoch) names one transaction. EndTxn may be
  retried: a commit that has happened gets the same response, and a late copy meets a higher epoch.
- Under TV1 consecutive transactions share their epoch and a late copy would end the next one (KAFKA-17754). So after
  any request that may still arrive (`unanswered`) the producer takes a new epoch, where the coordinator supports that
  (KIP-360, `bumps`).
- A commit that is rejected as fenced may only have timed out (KIP-588). Under TV2 the abort of the same epoch decides,
  and harms no other producer: it succeeds if the coordinator aborted, and is rejected if a newer producer exists. Under
  TV1 Kafka fences both for good. InitProducerId with a stale identity would abort the newer producer's transaction, so
  the machine does not send it.
- Once a commit was sent without a response (`commit_unanswered`), only a response to it, or to the abort after it,
  decides the outcome. Until then the outcome is UNKNOWN, and RECOVER sends the commit again.
"""

from dataclasses import replace
from typing import assert_never

from fencepost.client.core.txn_errors import INDEFINITE, TABLE, Meaning
from fencepost.client.core.txn_state import (
    NO_PRODUCER,
    AnyEvent,
    AskEnd,
    AskInit,
    Begin,
    Complete,
    Event,
    NextStep,
    NoResponse,
    Outcome,
    Phase,
    Response,
    StepResult,
    TakenOver,
    TxnState,
)
from fencepost.protocol.errors import ErrorCode


class Misuse(Exception):
    """The program called a step that is not allowed in `phase`."""

    def __init__(self, phase: Phase, what: str) -> None:
        super().__init__(f"{what} while {phase.value}")
        self.phase = phase


def step(state: TxnState, event: AnyEvent) -> tuple[TxnState, NextStep]:
    """The state after `event`, and the next request or the outcome. Raises Misuse. Pure."""
    match event:
        case Event():
            return _wanted(state, event)
        case Begin():
            _only(state, "begin", Phase.READY)
            return replace(
                state,
                phase=Phase.OPEN,
                tv2=event.tv2,
                bumps=event.bumps,
                begun=False,
                unanswered=False,
                commit_unanswered=False,
            ), None
        case TakenOver():
            phase = Phase.PREPARED if event.prepared else Phase.READY
            return replace(state, phase=phase, producer=event.producer, tv2=True), StepResult(Outcome.READY)
        case Complete():
            _only(state, "complete", Phase.PREPARED)
            return replace(state, phase=Phase.COMPLETING, commit=event.commit), AskEnd(
                state.producer, event.commit, tv2=True
            )
        case Response():
            return _answered(state, event)
        case NoResponse():
            return _unanswered(state, event.sent)
        case _:
            assert_never(event)


def _only(state: TxnState, what: str, *phases: Phase) -> None:
    if state.phase not in phases:
        raise Misuse(state.phase, what)


def _wanted(state: TxnState, event: Event) -> tuple[TxnState, NextStep]:
    match event:
        case Event.OPEN:
            _only(state, "open", Phase.NEW)
            return _start(state, Outcome.READY)
        case Event.WROTE | Event.UNANSWERED:
            if state.phase not in (Phase.OPEN, Phase.PREPARED):
                return state, None  # its transaction has ended, and the end has taken this request into account
            return replace(state, begun=True, unanswered=state.unanswered or event is Event.UNANSWERED), None
        case Event.COMMIT:
            _only(state, "commit", Phase.OPEN)
            if not state.begun:
                return replace(state, phase=Phase.READY), StepResult(Outcome.COMMITTED)
            return replace(state, phase=Phase.COMMITTING), AskEnd(state.producer, True, state.tv2)
        case Event.ABORT:
            _only(state, "abort", Phase.OPEN)
            if not state.begun:
                return replace(state, phase=Phase.READY), StepResult(Outcome.ABORTED)
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


def _start(state: TxnState, aim: Outcome) -> tuple[TxnState, NextStep]:
    return replace(state, phase=Phase.STARTING, aim=aim), AskInit(state.producer)


def _abort(state: TxnState, aim: Outcome) -> tuple[TxnState, NextStep]:
    return replace(state, phase=Phase.ABORTING, aim=aim), AskEnd(state.producer, False, state.tv2)


def _recover(state: TxnState) -> tuple[TxnState, NextStep]:
    match state.phase:
        case Phase.READY:
            return state, StepResult(Outcome.READY)
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


def _rest(state: TxnState, outcome: Outcome, phase: Phase = Phase.READY) -> tuple[TxnState, NextStep]:
    return replace(state, phase=phase, begun=False, unanswered=False, commit_unanswered=False), StepResult(outcome)


def _broken(state: TxnState, meaning: Meaning, code: ErrorCode) -> tuple[TxnState, NextStep]:
    """No transaction can follow. An unknown commit outcome takes precedence over the reason."""
    reason = {Meaning.FENCED: Outcome.FENCED, Meaning.FORBIDDEN: Outcome.FORBIDDEN}.get(meaning, Outcome.FATAL)
    outcome = Outcome.UNKNOWN if state.commit_unanswered else reason
    return replace(state, phase=Phase.BROKEN), StepResult(outcome, code)


def _answered(state: TxnState, response: Response) -> tuple[TxnState, NextStep]:
    match state.phase:
        case Phase.STARTING:
            return _initialised(state, response)
        case Phase.COMMITTING:
            return _commit_answered(state, response)
        case Phase.ABORTING:
            return _abort_answered(state, response)
        case Phase.COMPLETING:
            return _completed(state, response)
        case _:
            raise Misuse(state.phase, "a response")


def _initialised(state: TxnState, response: Response) -> tuple[TxnState, NextStep]:
    match TABLE["InitProducerId"][response.code]:
        case Meaning.DONE:
            return _rest(replace(state, producer=response.producer), state.aim)
        case Meaning.AGAIN | Meaning.MOVED:
            return state, AskInit(state.producer)
        case meaning:
            return _broken(state, meaning, response.code)


def _commit_answered(state: TxnState, response: Response) -> tuple[TxnState, NextStep]:
    code = response.code
    match TABLE["EndTxn"][code]:
        case Meaning.DONE:
            return _ended(state, response, Outcome.COMMITTED, now=False)
        case Meaning.AGAIN | Meaning.MOVED:
            lost = code in INDEFINITE
            again = replace(
                state, commit_unanswered=state.commit_unanswered or lost, unanswered=state.unanswered or lost
            )
            return again, AskEnd(state.producer, True, state.tv2)
        case Meaning.FENCED as meaning if not state.tv2:
            return _broken(state, meaning, code)
        case Meaning.FENCED | Meaning.NOT_OPEN if state.tv2:
            return _abort(state, Outcome.EXPIRED)
        case Meaning.NOT_OPEN:
            return _start(state, Outcome.EXPIRED) if state.bumps else _rest(state, Outcome.EXPIRED)
        case Meaning.LOST_IDENTITY if state.bumps:
            return _start(state, Outcome.UNKNOWN if state.commit_unanswered else Outcome.EXPIRED)
        case Meaning.FORBIDDEN | Meaning.FATAL | Meaning.LOST_IDENTITY as meaning:
            return _broken(state, meaning, code)
        case _:
            if state.commit_unanswered:
                return replace(state, phase=Phase.UNKNOWN), StepResult(Outcome.UNKNOWN, code)
            return replace(state, phase=Phase.OPEN), StepResult(Outcome.REJECTED, code)


def _ended(state: TxnState, response: Response, outcome: Outcome, *, now: bool) -> tuple[TxnState, NextStep]:
    """EndTxn succeeded. TV2 returned the next epoch; TV1 needs one where a request may still arrive (T7).

    `now`: take it before the outcome is returned; otherwise before the next transaction begins.
    """
    if state.tv2 and response.producer not in (NO_PRODUCER, state.producer):
        return _rest(replace(state, producer=response.producer), outcome)
    if not (state.unanswered and state.bumps):
        return _rest(state, outcome)
    settled = replace(state, begun=False, commit_unanswered=False)
    return _start(settled, outcome) if now else (replace(settled, phase=Phase.STALE), StepResult(outcome))


def _abort_answered(state: TxnState, response: Response) -> tuple[TxnState, NextStep]:
    code = response.code
    match TABLE["EndTxn"][code]:
        case Meaning.DONE:
            return _ended(state, response, state.aim, now=True)
        case Meaning.FENCED | Meaning.FORBIDDEN | Meaning.FATAL as meaning:
            return _broken(state, meaning, code)
        case Meaning.NOT_OPEN | Meaning.LOST_IDENTITY:
            # This producer has nothing open. After an unanswered commit this may mean that it has happened.
            aim = Outcome.UNKNOWN if state.commit_unanswered else state.aim
            return _start(state, aim) if state.bumps else _rest(state, aim)
        case _:
            return replace(state, unanswered=state.unanswered or code in INDEFINITE), AskEnd(
                state.producer, False, state.tv2
            )


def _completed(state: TxnState, response: Response) -> tuple[TxnState, NextStep]:
    match TABLE["EndTxn"][response.code]:
        case Meaning.DONE:
            producer = state.producer if response.producer == NO_PRODUCER else response.producer
            outcome = Outcome.COMMITTED if state.commit else Outcome.ABORTED
            return _rest(replace(state, producer=producer), outcome)
        case Meaning.AGAIN | Meaning.MOVED | Meaning.ABORT:
            return state, AskEnd(state.producer, state.commit, tv2=True)
        case meaning:
            return _broken(state, meaning, response.code)


def _unanswered(state: TxnState, sent: bool) -> tuple[TxnState, NextStep]:
    match state.phase:
        case Phase.STARTING:
            return state, AskInit(state.producer)
        case Phase.COMMITTING:
            lost = replace(
                state, commit_unanswered=state.commit_unanswered or sent, unanswered=state.unanswered or sent
            )
            return lost, AskEnd(state.producer, True, state.tv2)
        case Phase.ABORTING:
            return replace(state, unanswered=state.unanswered or sent), AskEnd(state.producer, False, state.tv2)
        case Phase.COMPLETING:
            return state, AskEnd(state.producer, state.commit, tv2=True)
        case _:
            raise Misuse(state.phase, "a lost response")


def _gave_up(state: TxnState) -> tuple[TxnState, NextStep]:
    match state.phase:
        case Phase.STARTING if state.producer == NO_PRODUCER:
            return replace(state, phase=Phase.NEW), StepResult(Outcome.FAILED)
        case Phase.STARTING:
            # The transaction's outcome is known; only the new epoch is missing.
            aim = Outcome.FAILED if state.aim is Outcome.READY else state.aim
            return replace(state, phase=Phase.STALE, commit_unanswered=False), StepResult(aim)
        case Phase.COMMITTING if not state.commit_unanswered:
            return replace(state, phase=Phase.OPEN), StepResult(Outcome.REJECTED)
        case Phase.COMMITTING:
            return replace(state, phase=Phase.UNKNOWN), StepResult(Outcome.UNKNOWN)
        case Phase.ABORTING if state.commit_unanswered:
            return replace(state, phase=Phase.UNKNOWN), StepResult(Outcome.UNKNOWN)
        case Phase.ABORTING:
            # It cannot commit any more, whether or not the coordinator has received the abort.
            aim = Outcome.FAILED if state.aim is Outcome.READY else state.aim
            return replace(state, phase=Phase.STALE), StepResult(aim)
        case Phase.COMPLETING:
            return replace(state, phase=Phase.PREPARED), StepResult(Outcome.FAILED)
        case _:
            raise Misuse(state.phase, "give up")
