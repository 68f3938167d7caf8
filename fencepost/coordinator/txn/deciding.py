"""From a command to the answer that may be sent: decide, append, write markers, and wait where necessary."""

import logging
from collections.abc import Collection
from dataclasses import replace

import trio

from fencepost.coordinator.ports import (
    Clock,
    LogSuperseded,
    LogWriteFailed,
    ProducerIdSource,
    Ticket,
    coordinator_error,
)
from fencepost.coordinator.txn import commands, expiry, machine
from fencepost.coordinator.txn.causes import Caller
from fencepost.coordinator.txn.commands import Answer, Command, NeedsProducerId, TxnDecision, Waiting
from fencepost.coordinator.txn.completion import Completion
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.doubts import Doubts
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.ids import TxnRuntime, TxnShard
from fencepost.coordinator.txn.state import Ongoing, PrepareAbort, PrepareCommit, TxnState, is_evidence
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


class Decisions:
    """The shell around the machine. A request that can be answered at once needs no coroutine."""

    def __init__(
        self,
        runtime: TxnRuntime,
        completion: Completion,
        history: FencingHistory,
        producer_ids: ProducerIdSource,
        clock: Clock,
        config: TxnConfig,
    ) -> None:
        self._runtime = runtime
        self._completion = completion
        self._history = history
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self.doubts = Doubts(completion.writer, self._decide_again, config)
        """Open transactions that were loaded and whose outcome is not clear yet."""
        self._unsettled: dict[str, Ticket] = {}
        """Ids whose newest partitions may not be durable yet, with the ticket of their append."""

    def submit(self, transactional_id: str | None, command: Command, caller: Caller | None) -> Answer | Waiting:
        """The answer to one command, at once if nothing has to be waited for; all that it rests on is durable then.

        If markers take longer than `completion_wait_ms`, the answer does not wait for them: the outcome is final, as in
        Kafka.
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if self._completion.nursery is None:
            return Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        shard = self._runtime.shard_of(transactional_id)
        if shard.refusal:
            return Answer(shard.refusal)
        if transactional_id in self.doubts:
            return Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            decision, ticket = self._decide(shard, transactional_id, command, caller)
        except LogWriteFailed as error:
            return _refused(transactional_id, error)
        reply = decision.reply
        if (
            isinstance(reply, NeedsProducerId)
            or reply.error is ErrorCode.CONCURRENT_TRANSACTIONS
            or self._completion.is_under_way(transactional_id)
            or not ticket.is_durable
        ):
            return self._answer_later(shard, transactional_id, command, caller, decision, ticket)
        return self._durable(shard, transactional_id, command, reply, ticket, caller)

    async def _answer_later(
        self,
        shard: TxnShard,
        transactional_id: str,
        command: Command,
        caller: Caller | None,
        decision: TxnDecision,
        ticket: Ticket,
    ) -> Answer:
        """Wait until the answer may be sent. Decide again after the previous transaction's markers, with a fresh
        producer id, if another writer's rows came before the decision's own, or if the shard was unloaded.
        """
        deadline = trio.current_time() + self._config.completion_wait_ms / 1000
        try:
            while True:
                reply = decision.reply
                if isinstance(reply, NeedsProducerId):
                    command = await self._with_fresh_producer_id(command)
                elif reply.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                    if not await self._completion.wait(shard, transactional_id, deadline):
                        return self._explained(shard, transactional_id, command, reply, caller)
                else:
                    waited = reply.after_markers and await self._completion.wait(shard, transactional_id, deadline)
                    try:
                        await ticket.durable()
                    except LogSuperseded:
                        await self._runtime.loaded(self._runtime.shard_of(transactional_id))
                    else:
                        if not (waited and self._lacks_markers(shard, transactional_id)):
                            return self._durable(shard, transactional_id, command, reply, ticket, caller)
                shard = self._runtime.shard_of(transactional_id)
                decision, ticket = self._decide(shard, transactional_id, command, caller)
        except LogWriteFailed as error:
            return _refused(transactional_id, error)

    def _lacks_markers(self, shard: TxnShard, transactional_id: str) -> bool:
        """Whether the shard was unloaded while markers were written: its next load writes them again."""
        return bool(shard.refusal) or isinstance(shard.state.state_of(transactional_id), PrepareCommit | PrepareAbort)

    def _durable(
        self,
        shard: TxnShard,
        transactional_id: str,
        command: Command,
        answer: Answer,
        ticket: Ticket,
        caller: Caller | None,
    ) -> Answer:
        """The answer whose `ticket` is durable, and with it every earlier append of the log."""
        if self._unsettled and (waits := self._unsettled.get(transactional_id)) is not None:
            end_offset, awaited = ticket.end_offset, waits.end_offset
            assert end_offset is not None, "a durable record has its offset"
            if awaited is not None and awaited <= end_offset:
                del self._unsettled[transactional_id]
        return self._explained(shard, transactional_id, command, answer, caller)

    def _explained(
        self, shard: TxnShard, transactional_id: str, command: Command, answer: Answer, caller: Caller | None
    ) -> Answer:
        """The answer; if it refuses, its cause is noted in the history."""
        if answer.error or answer.missing:
            error = ErrorCode.TRANSACTION_ABORTABLE if answer.missing else answer.error
            self._history.refused(transactional_id, shard.state.state_of(transactional_id), command, error, caller)
        return answer

    def _decide(
        self, shard: TxnShard, transactional_id: str, command: Command, caller: Caller | None
    ) -> tuple[TxnDecision, Ticket]:
        """Decide, append, apply and start the follow-ups before any other task runs. The reply waits for the ticket.

        Raises LogWriteFailed; nothing has changed then.
        """
        before, now_ms = shard.state.state_of(transactional_id), self._clock.now_ms()
        decision = machine.decide(transactional_id, before, command, now_ms, self._config.transaction_version)
        if not decision.log:
            return decision, shard.log.newest
        ticket = shard.write(decision.log)
        is_begun_durably = transactional_id not in self._unsettled
        for record in decision.log:
            self.watch(transactional_id, record.state)
            if isinstance(record.state, Ongoing):
                self._unsettled[transactional_id] = ticket
            else:
                self._unsettled.pop(transactional_id, None)
            if isinstance(command, commands.InitProducerId | commands.TimeOut):
                self._history.identity_changed(transactional_id, before, command, record.state, caller)
            else:
                self._history.transaction_changed(transactional_id, command, caller, now_ms)
            if isinstance(record.state, PrepareCommit | PrepareAbort):
                may_be_first = is_begun_durably and isinstance(command, commands.EndTxn) and is_evidence(record.state)
                self._completion.begin(shard, transactional_id, record.state, ticket, may_be_first=may_be_first)
        return decision, ticket

    def _decide_again(self, shard: TxnShard, transactional_id: str, command: Command) -> None:
        self._history.decided_before(transactional_id)
        self._decide(shard, transactional_id, command, None)

    def watch(self, transactional_id: str, state: TxnState) -> None:
        """Start the timer of an open transaction, or stop that of one that has ended or has no timeout any more."""
        timers = self._runtime.timers
        if not isinstance(state, Ongoing) or state.timeout_ms == expiry.NO_TIMEOUT_MS:
            timers.stop(transactional_id)
        elif transactional_id not in timers:
            self._runtime.set_timer(transactional_id, expiry.due_in_ms(state, self._clock.now_ms()))

    async def time_out(self, transactional_id: str, command: Command) -> bool:
        """Abort a transaction for its timeout; False if it has ended. Raises LogWriteFailed."""
        decision, _ = self._decide(self._runtime.shard_of(transactional_id), transactional_id, command, None)
        if isinstance(decision.reply, NeedsProducerId):
            command = await self._with_fresh_producer_id(command)
            decision, _ = self._decide(self._runtime.shard_of(transactional_id), transactional_id, command, None)
        return bool(decision.log)

    async def _with_fresh_producer_id(self, command: Command) -> Command:
        """Raises LogWriteFailed with COORDINATOR_LOAD_IN_PROGRESS, as Kafka's RPCProducerIdManager without ids.

        Producers retry after it. NOT_CONTROLLER, which the metadata log refuses with, would end them.
        """
        assert isinstance(command, commands.InitProducerId | commands.EndTxn | commands.TimeOut), command
        try:
            fresh = await self._producer_ids.next_producer_id()
        except LogWriteFailed as error:
            raise LogWriteFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {error}") from error
        return replace(command, fresh_producer_id=fresh)

    # Durable partitions

    def is_ongoing_with(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> bool:
        """Whether exactly this identity has an open transaction with all `partitions`, durably, that may be written.

        Without durability a crash could keep the data and lose the transaction, and no coordinator would ever end it.
        """
        shard = self._runtime.find(transactional_id)
        state = None if shard is None else shard.state.open.get(transactional_id)
        return (
            state is not None
            and state.producer.producer_id == producer_id
            and state.producer.epoch == producer_epoch
            and state.partitions.issuperset(partitions)
            and not state.is_kept
            and transactional_id not in self._unsettled
            and transactional_id not in self.doubts
        )

    def forget(self, shard: TxnShard) -> None:
        """Release what is kept beside the state of a shard that is unloaded."""
        self.doubts.forget(shard)
        for name in [name for name in self._unsettled if self._runtime.find(name) is shard]:
            del self._unsettled[name]


def _refused(transactional_id: str, error: LogWriteFailed) -> Answer:
    logger.warning("transactional id %r: %s", transactional_id, error)
    return Answer(coordinator_error(error.code))
