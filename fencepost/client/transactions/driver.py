"""Carries out what the machine of a transactional producer asks, until it tells how it ended."""

from types import TracebackType

import anyio

from fencepost.client.background import shielded
from fencepost.client.core.txn_failures import error_of
from fencepost.client.core.txn_machine import Misuse, step
from fencepost.client.core.txn_state import (
    Answer,
    Anything,
    AskEnd,
    AskInit,
    Event,
    NoAnswer,
    Outcome,
    Phase,
    Told,
    TxnState,
)
from fencepost.client.errors import (
    AbortableError,
    AuthenticationError,
    AuthorizationError,
    ConnectionLostError,
    FatalError,
    FencedError,
    KafkaError,
    OutcomeUnknownError,
    RetriableError,
)
from fencepost.client.network.cluster import Cluster
from fencepost.client.network.retry import RetryPolicy
from fencepost.client.transactions.requests import TransactionLink, abortable
from fencepost.protocol.errors import ErrorCode

FIRST_PAUSE_MS = 1
"""Kafka answers CONCURRENT_TRANSACTIONS while the markers of the transaction before are written: some milliseconds."""
_APIS = {AskInit: "InitProducerId", AskEnd: "EndTxn"}


class TransactionDriver:
    """The machine's state, and the way from an event to its outcome."""

    def __init__(self, cluster: Cluster, link: TransactionLink) -> None:
        config = cluster.config
        self.link = link
        self.policy = RetryPolicy(
            min(FIRST_PAUSE_MS, config.retry_backoff_ms),
            config.retry_backoff_max_ms,
            config.default_api_timeout_ms,
            cluster.random,
            cluster.policy.warnings,
        )
        self.state = TxnState()
        self.last: KafkaError | None = None
        """What went wrong last on the way to the outcome."""
        self.cancelled: BaseException | None = None
        """The cancellation that came on the way to the last outcome; under asyncio nobody raises it again but we."""
        self._asking: AskInit | AskEnd | None = None

    def note(self, event: Anything) -> Told | None:
        """Let the machine make its step; what is to be asked waits for `drive`. Raises RuntimeError for a misuse."""
        try:
            self.state, then = step(self.state, event)
        except Misuse as misuse:
            raise RuntimeError(str(misuse)) from misuse
        self._asking = then if isinstance(then, AskInit | AskEnd) else None
        return then if isinstance(then, Told) else None

    async def drive(self, event: Anything, what: str, *, grace_s: float = 0.0) -> Told:
        """From `event` to its outcome, asking again until `default_api_timeout` is over.

        When the caller is cancelled, what is under way is asked for again for `grace_s` seconds, shielded. Then
        Cancelled is raised, unless there is an outcome by then, or a commit may have happened and nobody has told: that
        is told, and `cancelled` has the cancellation.
        """
        self.last = self.cancelled = None
        told = self.note(event)
        if told is not None:
            return told
        try:
            return await self._until_told(what)
        except anyio.get_cancelled_exc_class() as cancelled:
            self.cancelled = cancelled
            found: list[Told] = []

            async def ask_on() -> None:
                found.append(await self._until_told(what))

            if grace_s:
                await shielded(grace_s, ask_on)
            if found:
                return found[0]
            told = self._give_up()
            if told.outcome is Outcome.UNKNOWN:
                return told
            raise

    async def _until_told(self, what: str) -> Told:
        try:
            return await self.policy.run(self._ask_on, what=what)
        except RetriableError as error:
            self.last = error
            return self._give_up()

    def _give_up(self) -> Told:
        told = self.note(Event.GIVE_UP)
        assert told is not None
        return told

    async def _ask_on(self) -> Told:
        """Ask, and ask what follows from the answer; RetriableError where the same has to be asked again."""
        while True:
            asking = self._asking
            assert asking is not None
            api = _APIS[type(asking)]
            event: Anything
            try:
                event = answer = await self.link.ask(asking)
                if answer.code is not ErrorCode.NONE:
                    self.last = error_of(answer.code, f"{api} failed", api, self.link.node)
            except KafkaError as error:
                event, self.last = _heard(asking, error), error
            except anyio.get_cancelled_exc_class():
                self.note(NoAnswer(sent=True))
                raise
            told = self.note(event)
            if told is not None:
                return told
            if self._asking == asking:
                last = self.last
                assert last is not None
                if isinstance(last, RetriableError):
                    raise last
                raise RetriableError(str(last.args[0]), code=last.code, api=last.api, node=last.node) from last


def _heard(asking: AskInit | AskEnd, error: KafkaError) -> Anything:
    """What the machine has to know of an attempt that brought no answer."""
    if isinstance(error, ConnectionLostError):
        return NoAnswer(error.sent)
    if isinstance(error, RetriableError) and (error.code is None or error.api != _APIS[type(asking)]):
        return NoAnswer(sent=False)
    if isinstance(asking, AskEnd) and error.code is None and error.api == _APIS[AskEnd]:
        return NoAnswer(sent=True)  # an answer that cannot be read: it was carried out, or it was not
    return Answer(error.code if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR)


def error_for_outcome(told: Told, last: KafkaError | None, what: str) -> KafkaError:
    """The exception for an outcome that is none of those hoped for; `last` becomes its cause."""
    code = told.code if told.code is not None else last.code if last is not None else None
    api = last.api if last is not None else None
    node = last.node if last is not None else None
    error: KafkaError
    if isinstance(last, AuthenticationError) and told.outcome is not Outcome.UNKNOWN:
        return last
    match told.outcome:
        case Outcome.FENCED:
            error = FencedError(
                f"{what} failed: a newer producer has the transactional id", code=code, api=api, node=node
            )
        case Outcome.FORBIDDEN:
            error = AuthorizationError(f"{what} was rejected", code=code, api=api, node=node)
        case Outcome.UNKNOWN:
            error = OutcomeUnknownError("a commit was sent and no response came", code=code, api="EndTxn", node=node)
        case Outcome.EXPIRED:
            error = AbortableError(
                "the coordinator has aborted the transaction, perhaps because it was open for longer than its timeout",
                code=code,
                api=api,
                node=node,
            )
        case Outcome.REFUSED if last is not None:
            return abortable(last)
        case Outcome.REFUSED:
            error = AbortableError(f"{what} was rejected", code=code, api="EndTxn", node=node)
        case Outcome.FAILED if last is not None:
            return last
        case _:
            error = FatalError(f"{what} was rejected", code=code, api=api, node=node)
    error.__cause__ = last
    return error


class UnknownOutcome:
    """Tells the machine that a request may have been carried out, or may yet be, although no answer says so."""

    def __init__(self, driver: TransactionDriver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        self._driver.note(Event.WROTE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = isinstance(error, ConnectionLostError) and error.sent
        if lost or isinstance(error, anyio.get_cancelled_exc_class()):
            self._driver.note(Event.DOUBTED)


def may_begin(state: TxnState) -> None:
    """Raise what keeps a transaction from beginning now, other than a state that `recover` mends."""
    match state.phase:
        case Phase.NEW:
            raise RuntimeError("the producer is not open: use it with `async with`")
        case Phase.OPEN | Phase.COMMITTING | Phase.ABORTING | Phase.STARTING:
            raise RuntimeError("a transaction is already open on this producer")
        case Phase.PREPARED | Phase.COMPLETING:
            raise RuntimeError("a prepared transaction waits for its outcome: call complete() first")
        case Phase.UNKNOWN:
            raise OutcomeUnknownError("the last commit's outcome is unknown: call reinitialise() first")
        case _:
            return
