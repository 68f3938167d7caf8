"""From a command to the answer that may leave: decide, remember, carry out, and wait where something is to come."""

import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

import trio

from fencepost.coordinator.ports import LogWriteFailed, ProducerIdSource
from fencepost.coordinator.txn import commands, wire_codes
from fencepost.coordinator.txn.books import Books
from fencepost.coordinator.txn.causes import Caller
from fencepost.coordinator.txn.commands import Answer, Command, NeedsProducerId, TxnDecision
from fencepost.coordinator.txn.completion import Completions
from fencepost.coordinator.txn.stories import Stories
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

Waiting: TypeAlias = Coroutine[Any, Any, Answer]
"""An answer that has to wait for markers, for the disk or for a producer id: to be awaited."""


OF_IDENTITY = (commands.InitProducerId, commands.TimeOut)
"""Commands that may give the id another identity."""


class Asking:
    """The shell around the machine. A request that can be answered at once meets no coroutine on its way."""

    def __init__(
        self, books: Books, stories: Stories, completions: Completions, producer_ids: ProducerIdSource
    ) -> None:
        self.nursery: trio.Nursery | None = None
        """Where duties are carried out; None while nothing is answered."""
        self.opened = trio.Event()
        """Set when a transaction is open; replaced when none is."""
        self._books = books
        self.stories = stories
        """Why requests were refused, and who took whose identity."""
        self._completions = completions
        self._producer_ids = producer_ids

    def ask(self, transactional_id: str | None, command: Command, caller: Caller | None) -> Answer | Waiting:
        """The answer to one command, at once where nothing has to be waited for. It leaves when all it rests on is
        durable.
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if self.nursery is None:
            return Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self._books.is_lost(transactional_id):
            return Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            decision, end_offset = self.decide(transactional_id, command, caller)
        except LogWriteFailed as error:
            return self._refused(transactional_id, error)
        reply = decision.reply
        if isinstance(reply, NeedsProducerId) or not self._may_leave(transactional_id, reply, end_offset):
            return self._answer_later(transactional_id, command, caller, decision, end_offset)
        self._books.settle(transactional_id, end_offset)
        return self._explained(transactional_id, command, reply, caller)

    def _may_leave(self, transactional_id: str, reply: Answer, end_offset: int) -> bool:
        """Whether nothing has to be waited for: neither markers nor the disk."""
        if reply.error is ErrorCode.CONCURRENT_TRANSACTIONS or self._completions.is_under_way(transactional_id):
            return False
        return self._books.is_settled(transactional_id, end_offset)

    async def _answer_later(
        self, transactional_id: str, command: Command, caller: Caller | None, decision: TxnDecision, end_offset: int
    ) -> Answer:
        """Wait for what the decision rests on; decide again after markers and with a fresh producer id."""
        deadline = trio.current_time() + self._books.config.completion_wait_ms / 1000
        while True:
            reply = decision.reply
            if isinstance(reply, NeedsProducerId):
                command = await self.with_fresh_producer_id(command)
            elif reply.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            elif not await self._completions.wait(transactional_id, deadline, bool(decision.then)):
                return self._explained(transactional_id, command, reply, caller)
            try:
                decision, end_offset = self.decide(transactional_id, command, caller)
            except LogWriteFailed as error:
                return self._refused(transactional_id, error)
        if decision.then or reply.after_markers:
            await self._completions.wait(transactional_id, deadline, bool(decision.then))
        if refused := await self._books.shard_of(transactional_id).settled(end_offset):
            return Answer(wire_codes.of_failed_append(refused))
        self._books.settle(transactional_id, end_offset)
        return self._explained(transactional_id, command, reply, caller)

    def _refused(self, transactional_id: str, error: LogWriteFailed) -> Answer:
        logger.warning("transactional id %r: %s", transactional_id, error)
        return Answer(wire_codes.of_failed_append(error.code))

    def _explained(self, transactional_id: str, command: Command, answer: Answer, caller: Caller | None) -> Answer:
        """The answer; where it refuses, the cause is remembered."""
        if answer.error is not ErrorCode.NONE or answer.missing:
            error = ErrorCode.TRANSACTION_ABORTABLE if answer.missing else answer.error
            self.stories.refused(transactional_id, self._books.state_of(transactional_id), command, error, caller)
        return answer

    def decide(self, transactional_id: str, command: Command, caller: Caller | None = None) -> tuple[TxnDecision, int]:
        """One decision, with its duties begun before any other task runs. Raises LogWriteFailed."""
        if isinstance(command, OF_IDENTITY):
            before = self._books.state_of(transactional_id)
            decision, end_offset = self._books.decide(transactional_id, command)
            for record in decision.log:
                self.stories.gave_way(transactional_id, before, command, record.state, caller)
        else:
            decision, end_offset = self._books.decide(transactional_id, command)
            if decision.log:
                self.stories.went_on(transactional_id, command, caller)
        for duty in decision.then:
            assert self.nursery is not None
            self._completions.carry_out(self.nursery, duty, end_offset)
        if self._books.deadlines:
            self.opened.set()
        return decision, end_offset

    async def with_fresh_producer_id(self, command: Command) -> Command:
        assert isinstance(command, commands.InitProducerId | commands.EndTxn | commands.TimeOut), command
        return replace(command, fresh_producer_id=await self._producer_ids.next_producer_id())


async def there(soon: Answer | Waiting) -> Answer:
    """The answer, once it is there."""
    return soon if isinstance(soon, Answer) else await soon
