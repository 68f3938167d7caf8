"""The client's machine against the coordinator's: lost, late and doubled messages, reloads, a rival (rows T7, T16).

The client returns what happened: committed if and only if it returned so, never two outcomes, nothing left open.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.client.core.txn_errors import TABLE, Meaning
from fencepost.client.core.txn_machine import step
from fencepost.client.core.txn_state import (
    NO_PRODUCER,
    AnyEvent,
    AskEnd,
    AskInit,
    Begin,
    Event,
    NoResponse,
    Outcome,
    Phase,
    Response,
    StepResult,
    TxnState,
)
from fencepost.coordinator.txn import commands as coordinator
from fencepost.coordinator.txn.state import Ongoing, holder
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.examples import examples
from tests.property.small_coordinator import Broker, Write
from tests.unit.txn.kit import P0, P1

pytestmark = pytest.mark.long

NONE = ErrorCode.NONE
PLACES = st.sampled_from([P0, P1])


class Conversation(RuleBasedStateMachine):
    """One client, one coordinator, a rival, and a network that keeps nothing it promises."""

    @initialize(server_version=st.integers(0, 2), epoch=st.sampled_from([0, 0, 0, 32_764]))
    def begin(self, server_version: int, epoch: int) -> None:
        self.broker = Broker(server_version, epoch)
        self.tv2 = server_version == 2
        self.client = TxnState()
        self.asking: AskInit | AskEnd | None = None
        self.late: list[AskInit | AskEnd | Write | tuple[tuple[int, int], TopicPartition]] = []
        self.values: list[str] = []
        self.added: set[TopicPartition] = set()
        self.spoilt = False
        self.written = 0
        self.result: dict[str, bool] = {}
        self.fenced = False
        self.do(Event.OPEN)
        self.calm()

    # The client

    def do(self, event: AnyEvent) -> None:
        self.client, then = step(self.client, event)
        if isinstance(then, AskInit | AskEnd):
            self.asking = then
        elif isinstance(then, StepResult):
            self.asking = None
            self.hear(then)

    def hear(self, result: StepResult) -> None:
        match result.outcome:
            case Outcome.COMMITTED:
                self.settle(True)
            case Outcome.ABORTED | Outcome.EXPIRED:
                self.settle(False)
            case Outcome.REJECTED:
                self.spoilt = True
            case Outcome.FENCED:
                assert self.fenced, "fenced, and nobody newer is there"
                self.settle(False)
            case Outcome.UNKNOWN:
                # If the coordinator replaced the producer id, whose epochs were used up, it has forgotten the outcome
                # (INVALID_PRODUCER_ID_MAPPING). The producer continues, and only the log knows.
                assert self.client.phase in (Phase.UNKNOWN, Phase.BROKEN) or self.broker.ids_given > 1, "a lost outcome"
            case Outcome.FORBIDDEN | Outcome.FATAL:
                raise AssertionError(f"{result} without a reason")
            case Outcome.READY | Outcome.FAILED:
                pass

    def settle(self, committed: bool) -> None:
        for value in self.values:
            assert value not in self.result, "result twice"
            self.result[value] = committed
        self.values = []

    @precondition(lambda self: self.client.phase is Phase.READY)
    @rule(other=st.booleans())
    def begin_transaction(self, other: bool) -> None:
        """The cluster's level may have changed since the last one (row T16)."""
        tv2 = self.tv2 != (other and self.broker.server_version > 0)
        self.do(Begin(tv2=tv2, bumps=True))
        self.values, self.spoilt, self.added = [], False, set()

    @precondition(lambda self: self.client.phase is Phase.OPEN and not self.spoilt)
    @rule(place=PLACES, fate=st.sampled_from(["ok"] * 8 + ["lost", "unheard", "late", "twice", "twice"]))
    def write(self, place: TopicPartition, fate: str) -> None:
        if not self.client.tv2 and place not in self.added:
            self.add(place, fate)
            return
        self.written += 1
        write = Write(self.client.producer, self.client.tv2, place, str(self.written))
        self.do(Event.WROTE)
        self.values.append(write.value)
        if fate in ("late", "twice"):
            self.late.append(write)
        if fate != "ok":
            self.do(Event.UNANSWERED)
        code = self.broker.write(write) if fate in ("ok", "unheard", "twice") else NONE
        self.spoilt |= fate in ("lost", "late", "unheard") or code is not NONE

    def add(self, place: TopicPartition, fate: str) -> None:
        """TV1: until it is answered, the partition gets no record (row T3)."""
        self.do(Event.WROTE)
        if fate in ("late", "twice"):
            self.late.append((self.client.producer, place))
        if fate != "ok":
            self.do(Event.UNANSWERED)
        if fate in ("lost", "late"):
            return
        code = self.broker.add(self.client.producer, place, 0)
        if fate == "unheard":
            return
        if code is NONE:
            self.added.add(place)
        elif TABLE["AddPartitionsToTxn"][code] not in (Meaning.AGAIN, Meaning.MOVED):
            self.spoilt = True

    @precondition(lambda self: self.client.phase is Phase.OPEN)
    @rule(commit=st.sampled_from([True, True, True, False]))
    def end(self, commit: bool) -> None:
        self.do(Event.COMMIT if commit and not self.spoilt else Event.ABORT)

    @precondition(lambda self: self.client.phase in (Phase.STALE, Phase.UNKNOWN, Phase.NEW))
    @rule()
    def recover(self) -> None:
        self.do(Event.RECOVER)

    @precondition(lambda self: self.asking is not None)
    @rule(patience=st.integers(0, 1))
    def give_up(self, patience: int) -> None:
        if patience:
            self.do(Event.GIVE_UP)

    @precondition(lambda self: self.asking is not None)
    @rule(arrives=st.booleans())
    def cancelled(self, arrives: bool) -> None:
        """The program is cancelled while its request is on the way."""
        assert self.asking is not None
        if arrives:
            self.broker.answer(self.asking)
        self.do(NoResponse(sent=True))
        self.do(Event.GIVE_UP)

    @precondition(lambda self: self.client.phase is Phase.OPEN and not self.spoilt and not self.broker.loading)
    @rule()
    def write_and_end(self) -> None:
        """The short way to where it becomes interesting."""
        for _ in range(2):
            if not self.spoilt:
                self.broker.finish()
                self.write(P0, "ok")
        self.end(commit=True)

    @precondition(lambda self: self.asking is not None)
    @rule(really=st.booleans())
    def calm(self, really: bool = True) -> None:
        """For once everything is answered at once."""
        while really and self.asking is not None:
            self.broker.finish()
            self.do(self.broker.answer(self.asking))

    # The network

    @precondition(lambda self: self.asking is not None)
    @rule(
        fate=st.sampled_from(["ok", "ok", "not sent", "lost", "unheard", "unheard", "late"]),
        again=st.sampled_from([False, False, False, True]),
        error=st.sampled_from([None] * 6 + [ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT]),
    )
    def deliver(self, fate: str, again: bool, error: ErrorCode | None) -> None:
        """What was asked arrives, or does not; `again`: a copy of it stays on its way."""
        assert self.asking is not None
        ask = self.asking
        if (fate == "late" or (again and fate != "not sent")) and ask != AskInit(NO_PRODUCER):
            self.late.append(ask)  # a late copy of the very first request is a rival: see there
        if fate in ("not sent", "lost", "late"):
            self.do(NoResponse(sent=fate != "not sent"))
            return
        if error is ErrorCode.NOT_COORDINATOR:
            self.do(Response(error))
            return
        response = self.broker.answer(ask)
        if error is ErrorCode.REQUEST_TIMED_OUT:
            response = Response(error)  # the coordinator did not hear of its own replicas in time (row T7)
        self.do(NoResponse(sent=True) if fate == "unheard" else response)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 5))
    def late_copy(self, which: int) -> None:
        """KAFKA-17754: one caller gets it in the end, and no caller waits for the response."""
        self.arrive(self.late.pop(which % len(self.late)))

    def arrive(self, late: AskInit | AskEnd | Write | tuple[tuple[int, int], TopicPartition]) -> None:
        match late:
            case AskInit() | AskEnd():
                self.broker.answer(late)
            case Write():
                self.broker.write(late)
            case (producer, place):
                self.broker.add(producer, place, 0)

    # The broker

    @precondition(lambda self: self.broker.duty is not None)
    @rule()
    def marker(self) -> None:
        self.broker.one_marker()

    @rule()
    def reload(self) -> None:
        self.broker.reload()

    @rule(answers=st.sampled_from([0, 0, 0, 1, 2]))
    def load(self, answers: int) -> None:
        """So many requests hear that it is still reading its log (row T13)."""
        self.broker.loading = answers

    @precondition(lambda self: isinstance(self.broker.state, Ongoing))
    @rule()
    def time_out(self) -> None:
        """Row T10. Under TV1 it fences whoever held the transaction for good (row T11)."""
        assert isinstance(self.broker.state, Ongoing)
        producer = self.broker.state.producer
        self.fenced |= self.broker.server_version < 2 or not self.client.tv2
        self.broker.ask(coordinator.TimeOut(producer.producer_id, producer.epoch))

    @rule(likely=st.integers(0, 40))
    def rival(self, likely: int) -> None:
        """Somebody opens the same transactional id, or a late copy of our own first request arrives."""
        if likely == 40 and not self.broker.loading:
            self.fenced = True
            self.broker.ask(coordinator.InitProducerId(60_000))

    # What must hold

    @invariant()
    def what_was_told_is_what_happened(self) -> None:
        for value, committed in getattr(self, "result", {}).items():
            if committed:
                assert self.broker.decided.get(value) is True, f"{value} was returned as committed"
            else:
                assert self.broker.decided.get(value) is not True, f"{value} was returned as aborted"

    @invariant()
    def nothing_is_open_where_a_transaction_may_begin(self) -> None:
        if not hasattr(self, "client") or self.client.phase is not Phase.READY or self.fenced:
            return
        state = self.broker.state
        assert not isinstance(state, Ongoing) or holder(state) != self.client.producer

    def teardown(self) -> None:
        """The network calms down, everything late arrives, the client recovers: nothing hangs, nothing is half-done."""
        if not hasattr(self, "client"):
            return
        self.broker.loading = 0
        for _ in range(100):
            self.broker.finish()
            if self.asking is not None:
                self.do(self.broker.answer(self.asking))
            elif self.client.phase is Phase.OPEN:
                self.do(Event.ABORT)
            elif self.client.phase in (Phase.STALE, Phase.UNKNOWN, Phase.NEW):
                self.do(Event.RECOVER)
            else:
                break
        else:
            raise AssertionError(f"the client never came to rest: {self.client}")
        self.broker.finish()
        if not self.fenced:
            assert self.client.phase is Phase.READY
            for late in self.late:
                self.arrive(late)
                self.broker.finish()
            if not self.fenced:
                assert not isinstance(self.broker.state, Ongoing), "a late copy opened what nobody ends"
                assert not any(partition.open for partition in self.broker.partitions.values())
        self.what_was_told_is_what_happened()
        for partition in self.broker.partitions.values():
            assert set(partition.committed()) <= {value for value, done in self.broker.decided.items() if done}


Conversation.TestCase.settings = settings(max_examples=examples(250), stateful_step_count=100, deadline=None)
TestConversation = Conversation.TestCase
