"""All transactional ids of one partition of `__transaction_state`, counted by phase."""

from collections.abc import Iterator

from fencepost.coordinator.txn import machine
from fencepost.coordinator.txn.state import (
    DEAD,
    PHASES,
    Dead,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    TxnRecord,
    TxnState,
)


class Ledger:
    """What one log folds to. Its states are values; the ledger itself changes in place, for it may hold very many."""

    def __init__(self) -> None:
        self._states: dict[str, TxnState] = {}
        self._counts: dict[type[TxnState], int] = dict.fromkeys(PHASES, 0)
        self.open: dict[str, Ongoing] = {}
        """The ids with an open transaction."""

    def __len__(self) -> int:
        return len(self._states)

    def state_of(self, transactional_id: str) -> TxnState:
        """The state of an id; DEAD for one that is not known."""
        return self._states.get(transactional_id, DEAD)

    def items(self) -> Iterator[tuple[str, TxnState]]:
        """Every id that is known, with its state."""
        return iter(self._states.items())

    def count(self, phase: type[TxnState]) -> int:
        """How many ids are in `phase`."""
        return self._counts[phase]

    def prepared(self) -> list[tuple[str, PrepareCommit | PrepareAbort]]:
        """The ids whose transaction is decided and whose markers may not all be written."""
        return [
            (name, state) for name, state in self._states.items() if isinstance(state, PrepareCommit | PrepareAbort)
        ]

    def put(self, record: TxnRecord) -> None:
        """Take over one record of the log."""
        name = record.transactional_id
        before = self._states.get(name)
        after = machine.apply(DEAD if before is None else before, record)
        if before is not None:
            self._counts[type(before)] -= 1
            self.open.pop(name, None)
        if isinstance(after, Dead):
            self._states.pop(name, None)
            return
        self._states[name] = after
        self._counts[type(after)] += 1
        if isinstance(after, Ongoing):
            self.open[name] = after


def apply(ledger: Ledger, record: TxnRecord) -> Ledger:
    """The fold step that runtime and replay share."""
    ledger.put(record)
    return ledger
