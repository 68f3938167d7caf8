"""Sends the requests of a transactional producer's state machine until the machine has an outcome."""

from types import TracebackType

import anyio

from fencepost.client.background import shielded
from fencepost.client.core.txn_failures import error_of
from fencepost.client.core.txn_machine import Misuse, step
from fencepost.client.core.txn_state import (
    AnyEvent,
    AskEnd,
    AskInit,
    Event,
    NoResponse,
    Outcome,
    Phase,
    Response,
    StepResult,
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
"""Kafka returns CONCURRENT_TRANSACTIONS while it writes the previous transaction's markers: some milliseconds."""
_APIS = {AskInit: "InitProducerId", AskEnd: "EndTxn"}


class TransactionDriver:
    """Runs the state machine: sends its requests until an event has its outcome."""

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
        """The last error before the outcome."""
        self.cancelled: BaseException | None = None
        """The cancellation that came before the last outcome; asyncio does not raise it again, so the caller must."""
        self._request: AskInit | AskEnd | None = None

    def note(self, event: AnyEvent) -> StepResult | None:
        """Give the machine an event; its request waits for `drive`. Raises RuntimeError for a misuse."""
        try:
            self.state, then = step(self.state, event)
        except Misuse as misuse:
            raise RuntimeError(str(misuse)) from misuse
        self._request = then if isinstance(then, AskInit | AskEnd) else None
        return then if isinstance(then, StepResult) else None

    async def drive(self, event: AnyEvent, what: str, *, grace_s: float = 0.0) -> StepResult:
        """From `event` to its outcome, with retries until `default_api_timeout` is over.

        When the caller is cancelled, the request under way is retried for `grace_s` seconds, shielded. Then Cancelled
        is raised, unless there is an outcome by then, or a commit has an unknown outcome. That is then returned, and
        `cancelled` has the cancellation.
        """
        self.last = self.cancelled = None
        result = self.note(event)
        if result is not None:
            return result
        try:
            return await self._until_outcome(what)
        except anyio.get_cancelled_exc_class() as cancelled:
            self.cancelled = cancelled
            found: list[StepResult] = []

            async def retry() -> None:
                found.append(await self._until_outcome(what))

            if grace_s:
                await shielded(grace_s, retry)
            if found:
                return found[0]
            result = self._give_up()
            if result.outcome is Outcome.UNKNOWN:
                return result
            raise

    async def _until_outcome(self, what: str) -> StepResult:
        try:
            return await self.policy.run(self._request_outcome, what=what)
        except RetriableError as error:
            self.last = error
            return self._give_up()

    def _give_up(self) -> StepResult:
        result = self.note(Event.GIVE_UP)
        assert result is not None
        return result

    async def _request_outcome(self) -> StepResult:
        """Send the request and those that follow from its response. Raises RetriableError to retry the same one."""
        while True:
            request = self._request
            assert request is not None
            api = _APIS[type(request)]
            event: AnyEvent
            try:
                event = response = await self.link.ask(request)
                if response.code is not ErrorCode.NONE:
                    self.last = error_of(response.code, f"{api} failed", api, self.link.node)
            except KafkaError as error:
                event, self.last = _event_for(request, error), error
            except anyio.get_cancelled_exc_class():
                self.note(NoResponse(sent=True))
                raise
            result = self.note(event)
            if result is not None:
                return result
            if self._request == request:
                last = self.last
                assert last is not None
                if isinstance(last, RetriableError):
                    raise last
                raise RetriableError(str(last.args[0]), code=last.code, api=last.api, node=last.node) from last


def _event_for(request: AskInit | AskEnd, error: KafkaError) -> AnyEvent:
    """The machine's event for an attempt without a response."""
    if isinstance(error, ConnectionLostError):
        return NoResponse(error.sent)
    if isinstance(error, RetriableError) and (error.code is None or error.api != _APIS[type(request)]):
        return NoResponse(sent=False)
    if isinstance(request, AskEnd) and error.code is None and error.api == _APIS[AskEnd]:
        return NoResponse(sent=True)  # the response cannot be read: the request may have succeeded
    return Response(error.code if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR)


def error_for_outcome(result: StepResult, last: KafkaError | None, what: str) -> KafkaError:
    """The exception for an outcome that is not the wanted one; `last` becomes its cause."""
    code = result.code if result.code is not None else last.code if last is not None else None
    api = last.api if last is not None else None
    node = last.node if last is not None else None
    error: KafkaError
    if isinstance(last, AuthenticationError) and result.outcome is not Outcome.UNKNOWN:
        return last
    match result.outcome:
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
        case Outcome.REJECTED if last is not None:
            return abortable(last)
        case Outcome.REJECTED:
            error = AbortableError(f"{what} was rejected", code=code, api="EndTxn", node=node)
        case Outcome.FAILED if last is not None:
            return last
        case _:
            error = FatalError(f"{what} was rejected", code=code, api=api, node=node)
    error.__cause__ = last
    return error


class UnknownOutcome:
    """Notes that a request without a response may have been carried out, or may still be."""

    def __init__(self, driver: TransactionDriver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        self._driver.note(Event.WROTE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = isinstance(error, ConnectionLostError) and error.sent
        if lost or isinstance(error, anyio.get_cancelled_exc_class()):
            self._driver.note(Event.UNANSWERED)


def may_begin(state: TxnState) -> None:
    """Raise what prevents a transaction from beginning now, except a state from which RECOVER leads out."""
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
