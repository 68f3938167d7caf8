"""Brokers made wrong on purpose, for worlds of groups of either protocol. Each undoes itself with `monkeypatch`."""

from typing import Any

import pytest

from fencepost.coordinator.group.offsets import OffsetStore


def some_offsets_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: Any, record: Any) -> None:
        if self.count % 3 == 2 and not self._pending:
            self._next += 1
            return
        whole(self, record)

    whole = OffsetStore.apply
    monkeypatch.setattr(OffsetStore, "apply", apply)


def positions_are_told_while_a_transaction_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(self: Any, group_id: str, partitions: Any, require_stable: bool) -> Any:
        return whole(self, group_id, partitions, False)

    whole = OffsetStore.fetch
    monkeypatch.setattr(OffsetStore, "fetch", fetch)
