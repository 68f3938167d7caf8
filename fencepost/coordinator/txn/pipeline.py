"""From a command to the answer that may be sent: decide, append, write markers, and wait where necessary."""

import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

import trio

from fencepost.coordinator.ports import LogSuperseded, LogWriteFailed, ProducerIdSource, Ticket, coordinator_error
from fencepost.coordinator.txn import commands
from fencepost.coordinator.txn.causes import Caller
from fencepost.coordinator.txn.commands import Answer, Command, NeedsProducerId, TxnDecision
from fencepost.coordinator.txn.completion import Completions
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.store import TxnStore
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Waiting: TypeAlias = Coroutine[Any, Any, Answer]
"""An answer that has to wait for markers, for the disk or for a producer id: the caller awaits it."""


OF_IDENTITY = (commands.InitProducerId, commands.TimeOut)
"""Commands that may change the identity of the id."""


class RequestPipeline:
    """The shell around the machine. A request that can be answered at once needs no coroutine."""

    def __init__(
        self, store: TxnStore, history: FencingHistory, completions: Completions, producer_ids: ProducerIdSource
    ) -> None:
        self.nursery: trio.Nursery | None = None
        """Where follow-ups run; None while the coordinator serves no requests."""
        self._store = store
        self.history = history
        """Why requests were refused, and which clients took which identities."""
        self._completions = completions
        self._producer_ids = producer_ids

    def submit(self, transactional_id: str | None, command: Command, caller: Caller | None) -> Answer | Waiting:
        """The answer to one command, at once if nothing has to be waited for; all that it rests on is durable then."""
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if self.nursery is None:
            return Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if refusal := self._store.shard_of(transactional_id).refusal:
            return Answer(refusal)
        try:
            decision, ticket = self.decide(transactional_id, command, caller)
        except LogWriteFailed as error:
            return self._refused(transactional_id, error)
        reply = decision.reply
        if isinstance(reply, NeedsProducerId) or not self._may_leave(transactional_id, reply, ticket):
            return self._answer_later(transactional_id, command, caller, decision, ticket)
        self._store.settle(transactional_id, ticket)
        return self._explained(transactional_id, command, reply, caller)

    def _may_leave(self, transactional_id: str, reply: Answer, ticket: Ticket) -> bool:
        """Whether the reply needs to wait neither for markers nor for the disk."""
        if reply.error is ErrorCode.CONCURRENT_TRANSACTIONS or self._completions.is_under_way(transactional_id):
            return False
        return ticket.is_durable

    async def _answer_later(
        self, transactional_id: str, command: Command, caller: Caller | None, decision: TxnDecision, ticket: Ticket
    ) -> Answer:
        """Wait until the answer may be sent. Decide again after the previous transaction's markers, with a fresh
        producer id, or if another writer's rows came before the decision's own.
        """
        deadline = trio.current_time() + self._store.config.completion_wait_ms / 1000
        try:
            while True:
                reply = decision.reply
                if isinstance(reply, NeedsProducerId):
                    command = await self.with_fresh_producer_id(command)
                elif reply.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                    if not await self._completions.wait(transactional_id, deadline):
                        return self._explained(transactional_id, command, reply, caller)
                else:
                    if decision.then or reply.after_markers:
                        await self._completions.wait(transactional_id, deadline)
                    try:
                        await ticket.durable()
                    except LogSuperseded:
                        await self._store.runtime.loaded(self._store.shard_of(transactional_id))
                    else:
                        self._store.settle(transactional_id, ticket)
                        return self._explained(transactional_id, command, reply, caller)
                decision, ticket = self.decide(transactional_id, command, caller)
        except LogWriteFailed as error:
            return self._refused(transactional_id, error)

    def _refused(self, transactional_id: str, error: LogWriteFailed) -> Answer:
        logger.warning("transactional id %r: %s", transactional_id, error)
        return Answer(coordinator_error(error.code))

    def _explained(self, transactional_id: str, command: Command, answer: Answer, caller: Caller | None) -> Answer:
        """The answer; if it refuses, its cause is noted in the history."""
        if answer.error or answer.missing:
            error = ErrorCode.TRANSACTION_ABORTABLE if answer.missing else answer.error
            self.history.refused(transactional_id, self._store.state_of(transactional_id), command, error, caller)
        return answer

    def decide(
        self, transactional_id: str, command: Command, caller: Caller | None = None
    ) -> tuple[TxnDecision, Ticket]:
        """Make one decision, and start its follow-ups before any other task runs. Raises LogWriteFailed."""
        if isinstance(command, OF_IDENTITY):
            before = self._store.state_of(transactional_id)
            decision, ticket = self._store.decide(transactional_id, command)
            for record in decision.log:
                self.history.identity_changed(transactional_id, before, command, record.state, caller)
        else:
            decision, ticket = self._store.decide(transactional_id, command)
            if decision.log:
                self.history.transaction_changed(transactional_id, command, caller)
        for follow_up in decision.then:
            assert self.nursery is not None
            self._completions.carry_out(self.nursery, follow_up, ticket)
        return decision, ticket

    async def with_fresh_producer_id(self, command: Command) -> Command:
        """Raises LogWriteFailed with COORDINATOR_LOAD_IN_PROGRESS, as Kafka's RPCProducerIdManager without ids.

        Producers retry after it. NOT_CONTROLLER, which the metadata log refuses with, would end them.
        """
        assert isinstance(command, commands.InitProducerId | commands.EndTxn | commands.TimeOut), command
        try:
            fresh = await self._producer_ids.next_producer_id()
        except LogWriteFailed as error:
            raise LogWriteFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {error}") from error
        return replace(command, fresh_producer_id=fresh)


async def resolve(answer: Answer | Waiting) -> Answer:
    """The answer, awaited if necessary."""
    return answer if isinstance(answer, Answer) else await answer
