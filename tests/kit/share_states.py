"""A share coordinator in memory: it remembers what it was asked, and refuses or waits when a test wants it."""

from collections.abc import Iterable, Mapping

import trio

from fencepost.coordinator.share.values import (
    InitialState,
    Outcome,
    ShareKey,
    StateSummary,
    StateUpdate,
    StoredState,
)
from fencepost.protocol.errors import ErrorCode


class MemoryStates:
    def __init__(self) -> None:
        self.states: dict[ShareKey, InitialState] = {}
        self.asked: list[dict[ShareKey, InitialState]] = []
        """The initialisations, in their order."""
        self.refuses: dict[ShareKey, ErrorCode] = {}
        self.gate: trio.Event | None = None
        """If it is set, requests wait for it."""

    async def initialize(self, states: Mapping[ShareKey, InitialState]) -> Mapping[ShareKey, Outcome]:
        self.asked.append(dict(states))
        outcomes = await self._outcomes(states)
        self.states |= {key: state for key, state in states.items() if not outcomes[key].error}
        return outcomes

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        state = self.states[key]
        return StoredState(state_epoch=state.state_epoch, start_offset=state.start_offset)

    async def write(self, updates: Mapping[ShareKey, StateUpdate]) -> Mapping[ShareKey, Outcome]:
        return await self._outcomes(updates)

    async def summaries(self, keys: Mapping[ShareKey, int]) -> Mapping[ShareKey, StateSummary]:
        return {key: self._summary(key) for key in keys}

    async def delete(self, keys: Iterable[ShareKey]) -> Mapping[ShareKey, Outcome]:
        outcomes = await self._outcomes(keys)
        for key, outcome in outcomes.items():
            if not outcome.error:
                self.states.pop(key, None)
        return outcomes

    def _summary(self, key: ShareKey) -> StateSummary:
        state = self.states.get(key)
        if state is None:
            return StateSummary(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return StateSummary(
            state_epoch=state.state_epoch, leader_epoch=7, start_offset=state.start_offset, delivery_complete_count=2
        )

    async def _outcomes(self, keys: Iterable[ShareKey]) -> dict[ShareKey, Outcome]:
        if self.gate is not None:
            await self.gate.wait()
        return {key: Outcome(self.refuses.get(key, ErrorCode.NONE)) for key in keys}
