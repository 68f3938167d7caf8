"""Remembers, for a bounded number of ids, what changed their identity and which requests it fenced; counts both."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable

from fencepost.coordinator.ports import Clock
from fencepost.coordinator.txn import wire_codes
from fencepost.coordinator.txn.causes import (
    EXPLAINED,
    Caller,
    Cause,
    Change,
    Identity,
    IdHistory,
    Reason,
    Refusal,
    explain,
    is_tool,
    request_of,
)
from fencepost.coordinator.txn.commands import (
    AddPartitions,
    Command,
    EndTxn,
    InitProducerId,
    TimeOut,
    VerifyPartitions,
)
from fencepost.coordinator.txn.state import Dead, Empty, Ongoing, PrepareAbort, TxnRecord, TxnState, holder
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

IDS_KEPT = 10_000
"""How many ids have a history at once, some KiB each at most; the one whose identity changed longest ago is dropped."""
FENCING = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED}
)
NO_IDENTITY: Identity = (-1, -1)


class FencingHistory:
    """One per coordinator. It only explains: no decision depends on it.

    Keys are transactional ids, and producer ids (int) for producers without one.
    """

    def __init__(self, clock: Clock, ids_max: int = IDS_KEPT) -> None:
        self.refused_by: Counter[tuple[ErrorCode, Reason]] = Counter()
        """How many requests were refused, by code and reason."""
        self._clock = clock
        self._max = ids_max
        self._histories: OrderedDict[str | int, IdHistory] = OrderedDict()
        self._ending: dict[str, Reason] = {}
        """Why the transactions that are being completed were ended, unless by EndTxn of their holder."""

    def __len__(self) -> int:
        return len(self._histories)

    def of(self, key: str | int) -> IdHistory | None:
        """The history of an id, if it has one."""
        return self._histories.get(key)

    @property
    def fenced_by(self) -> Counter[Reason]:
        """How many requests were refused for a stale identity, by reason."""
        found: Counter[Reason] = Counter()
        for (code, reason), count in self.refused_by.items():
            if code in FENCING:
                found[reason] += count
        return found

    # Changes

    def transaction_changed(self, transactional_id: str, command: Command, caller: Caller | None, now_ms: int) -> None:
        """Note that the holder of an id added partitions or ended a transaction."""
        history = self._history_of(transactional_id)
        history.writer = caller
        if isinstance(command, EndTxn):
            shown = (command.producer_id, command.epoch)
            history.ended = (now_ms, shown, command.commit, caller)

    def identity_changed(
        self,
        transactional_id: str,
        before: TxnState,
        command: InitProducerId | TimeOut,
        after: TxnState,
        caller: Caller | None,
    ) -> None:
        """Note a record that InitProducerId or a timeout wrote for an id."""
        history = self._history_of(transactional_id)
        self._histories.move_to_end(transactional_id)
        aborted = isinstance(after, PrepareAbort)
        reason = _reason(command, after, caller)
        if aborted:
            self._ending[transactional_id] = reason
        if isinstance(after, Empty | Ongoing):
            history.owner, history.writer = caller, None
        if not isinstance(before, Dead) and not isinstance(after, Dead) and holder(before) != holder(after):
            change = Change(self._clock.now_ms(), reason, holder(before), holder(after), request_of(caller), aborted)
            if caller is not None and history.aborting is caller:  # one request: first the abort, then the grant
                change = history.changes.pop()._replace(after=change.after)
            history.changes.append(change)
            history.aborting = caller if aborted else None

    def expired(self, tombstones: Iterable[TxnRecord]) -> None:
        """Note that these ids have expired."""
        for record in tombstones:
            history = self._history_of(record.transactional_id)
            history.owner = history.writer = history.ended = None
            history.changes.append(
                Change(self._clock.now_ms(), Reason.EXPIRED, NO_IDENTITY, NO_IDENTITY, "", aborted=False)
            )

    def decided_before(self, transactional_id: str) -> None:
        """Note that a transaction that is being completed was decided before this process started."""
        self._ending[transactional_id] = Reason.BEFORE_START

    def ending(self, transactional_id: str) -> Reason:
        """Why the transaction that is now complete was ended; ENDED: by its holder."""
        return self._ending.pop(transactional_id, Reason.ENDED) if self._ending else Reason.ENDED

    # Refusals

    def refused(
        self, transactional_id: str, state: TxnState, command: Command, error: ErrorCode, caller: Caller | None
    ) -> None:
        """Note that the coordinator refused a request."""
        match command:
            case InitProducerId():
                shown = command.expected
            case AddPartitions() | VerifyPartitions() | EndTxn():
                shown = (command.producer_id, command.epoch)
            case _:
                return
        if error in EXPLAINED:
            cause = explain(state, self.of(transactional_id), shown, error)
            self.note(transactional_id, shown or NO_IDENTITY, error, cause, caller)

    def refused_write(
        self,
        transactional_id: str | None,
        state: TxnState,
        shown: Identity,
        error: ErrorCode,
        text: str,
        caller: Caller | None,
    ) -> None:
        """Note that a partition refused a batch of the identity `shown`; `text` is the partition's reason."""
        if error not in EXPLAINED:
            return
        if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            cause = Cause(Reason.MIXED, text)
        elif transactional_id is not None and not isinstance(state, Dead) and shown != holder(state):
            cause = explain(state, self.of(transactional_id), shown, error)
        elif error is ErrorCode.INVALID_TXN_STATE:
            cause = Cause(Reason.MARKER, text)
        else:
            cause = Cause(Reason.NEWER_EPOCH, text)
        self.note(shown[0] if transactional_id is None else transactional_id, shown, error, cause, caller)

    def note(self, key: str | int, shown: Identity, error: ErrorCode, cause: Cause, caller: Caller | None) -> None:
        """Remember one refusal, count it, and log it unless the same one was logged before."""
        code = error if caller is None else wire_codes.visible_in_reply(caller.api_key, caller.api_version, error)
        self.refused_by[code, cause.reason] += 1
        history = self._history_of(key)
        now_ms = self._clock.now_ms()
        client_id, host = (caller.client_id, caller.client_host) if caller is not None else (None, "")
        who = request_of(caller)
        for known in history.refusals:
            if (known.code, known.shown, known.by, known.cause.reason) == (code, shown, who, cause.reason):
                known.times += 1
                known.last_ms = now_ms
                return
        history.refusals.append(Refusal(now_ms, code, who, client_id, host, shown, cause, last_ms=now_ms))
        logger.warning(
            "refused %s=%r code=%s request=%s identity=%d:%d reason=%s because %s",
            "transactional_id" if isinstance(key, str) else "producer_id",
            key,
            code.name,
            who or "of the broker itself",
            *shown,
            cause.reason.value,
            cause.text,
        )

    def _history_of(self, key: str | int) -> IdHistory:
        history = self._histories.get(key)
        if history is None:
            if len(self._histories) >= self._max:
                self._histories.popitem(last=False)
            history = self._histories[key] = IdHistory()
        return history


def _reason(command: InitProducerId | TimeOut, after: TxnState, caller: Caller | None) -> Reason:
    if isinstance(command, TimeOut):
        return Reason.TIMEOUT
    if command.keep_prepared and isinstance(after, Ongoing):
        return Reason.KEPT
    if caller is None:
        return Reason.WENT_BACK
    if is_tool(caller):
        return Reason.TOOL
    return Reason.NEWCOMER if command.expected is None else Reason.REINIT
