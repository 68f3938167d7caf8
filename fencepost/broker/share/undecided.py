"""Transactions of a share partition whose state other brokers may keep, and whose end their markers decide there.

No broker informs the leader of an end, so no message can be lost: it reads the state of what is undecided, again and
again. What is not pending there any more has the state that the marker gave it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import trio

from fencepost.broker.share.change import Change
from fencepost.broker.share.led import FENCED, LedPartition, Storing, client_error
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.values import Outcome, ShareKey, StateUpdate, StoredState
from fencepost.protocol.errors import NO_ERROR, ErrorCode

LOOK_SECONDS = 0.25
"""How often the state of undecided records is read: as often as an owner looks for the markers of others."""


class TransactionalStates(Protocol):
    """The states of share partitions, wherever they are kept."""

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state of a share partition for its leader."""

    async def write_in(
        self, transactional_id: str, producer: ProducerTag, updates: Mapping[ShareKey, StateUpdate]
    ) -> Mapping[ShareKey, Outcome]:
        """Store what becomes of records if the producer's transaction commits, which the states join by themselves."""


class UndecidedPartitions:
    """Has transactions decide on records of share partitions that this broker leads."""

    def __init__(
        self,
        states: TransactionalStates,
        start: Callable[[Callable[[LedPartition], Awaitable[None]], LedPartition], None],
        store: Callable[[LedPartition, Change], Storing],
        drop: Callable[[LedPartition, ErrorCode], None],
        changed: Callable[[LedPartition], None],
    ) -> None:
        """The functions are those of `SharePartitions`."""
        self._states = states
        self._start, self._store, self._drop, self._changed = start, store, drop, changed

    async def store(
        self, transactional_id: str, producer: ProducerTag, changes: Sequence[tuple[LedPartition, Change]]
    ) -> list[ErrorCode]:
        """Store what is to become of records if a transaction commits; an error for each.

        What was refused is with its member as before; a share partition of which it is not known is begun anew.
        """
        updates = {led.key: change.update(led.log.leader_epoch) for led, change in changes}
        try:
            outcomes = await self._states.write_in(transactional_id, producer, updates)
        except BaseException:
            for led, _ in changes:
                self._drop(led, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise
        errors = [outcomes[led.key].error for led, _ in changes]
        for (led, change), error in zip(changes, errors, strict=True):
            change.settle(not error)
            if client_error(error) not in (NO_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR):
                self._drop(led, client_error(error))
            self.watch(led)
            self._changed(led)
        return errors

    def watch(self, led: LedPartition) -> None:
        """Look what becomes of records on which transactions decide, until all are decided."""
        if not led.watched and not led.error and led.core.undecided():
            led.watched = True
            self._start(self._look, led)

    async def _look(self, led: LedPartition) -> None:
        while not led.error and led.core.undecided():
            await trio.sleep(LOOK_SECONDS)
            asked = led.core.undecided()
            stored = await self._states.read(led.key, led.log.leader_epoch)
            if led.error:
                break
            if client_error(stored.error) in FENCED:
                self._drop(led, client_error(stored.error))
            elif not stored.error and stored.state_epoch != led.core.state_epoch:
                self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif not stored.error:
                self._store(led, led.core.resolve_as_stored(asked, stored))
                self._changed(led)
        led.watched = False
