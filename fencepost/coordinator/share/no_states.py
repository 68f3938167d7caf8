"""A share coordinator that keeps nothing: the stand-in where no other runs (Kafka's NoOpStatePersister)."""

from collections.abc import Iterable, Mapping

from fencepost.coordinator.share.values import InitialState, Outcome, ShareKey, StateSummary, StateUpdate, StoredState


class NoStates:
    """Every request succeeds; every share partition begins anew with its leader."""

    async def initialize(self, states: Mapping[ShareKey, InitialState]) -> Mapping[ShareKey, Outcome]:
        return dict.fromkeys(states, Outcome())

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        return StoredState()

    async def write(self, updates: Mapping[ShareKey, StateUpdate]) -> Mapping[ShareKey, Outcome]:
        return dict.fromkeys(updates, Outcome())

    async def summaries(self, keys: Mapping[ShareKey, int]) -> Mapping[ShareKey, StateSummary]:
        return dict.fromkeys(keys, StateSummary())

    async def delete(self, keys: Iterable[ShareKey]) -> Mapping[ShareKey, Outcome]:
        return dict.fromkeys(keys, Outcome())
