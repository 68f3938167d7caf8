"""All transactional ids of one partition of `__transaction_state`, counted by phase."""

from collections.abc import Iterator

from fencepost.coordinator.ports import KeyValue, LogUnreadable, ReplayedBatch
from fencepost.coordinator.txn import codec
from fencepost.coordinator.txn.config import TxnConfig
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


class TxnShardState:
    """The state that one log folds to. It changes in place, for it may hold very many ids; their states are values."""

    def __init__(self) -> None:
        self._states: dict[str, TxnState] = {}
        self._counts: dict[type[TxnState], int] = dict.fromkeys(PHASES, 0)
        self.open: dict[str, Ongoing] = {}
        """The ids with an open transaction."""

    def __len__(self) -> int:
        return len(self._states)

    def state_of(self, transactional_id: str) -> TxnState:
        """The state of an id; DEAD for an unknown one."""
        return self._states.get(transactional_id, DEAD)

    def items(self) -> Iterator[tuple[str, TxnState]]:
        """Every known id, with its state."""
        return iter(self._states.items())

    def count(self, phase: type[TxnState]) -> int:
        """How many ids are in `phase`."""
        return self._counts[phase]

    def prepared(self) -> list[tuple[str, PrepareCommit | PrepareAbort]]:
        """The ids whose transaction is decided while some of its markers may not be written."""
        return [
            (name, state) for name, state in self._states.items() if isinstance(state, PrepareCommit | PrepareAbort)
        ]

    def put(self, record: TxnRecord) -> None:
        """Apply one record, which holds the whole state of its id: so a compacted log is enough for a replay."""
        name, after = record.transactional_id, record.state
        before = self._states.get(name)
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


class TxnRecords:
    """How a shard of transactions folds: the runtime's `Machine`."""

    def __init__(self, config: TxnConfig) -> None:
        self._config = config

    def empty(self) -> TxnShardState:
        """No ids."""
        return TxnShardState()

    def apply(self, state: TxnShardState, record: TxnRecord) -> TxnShardState:
        """The fold step that runtime and replay share."""
        state.put(record)
        return state

    def encode(self, record: TxnRecord) -> KeyValue:
        """The record as the log stores it."""
        return codec.encode(record, self._config.transaction_version)

    def replay(self, state: TxnShardState, batch: ReplayedBatch) -> int:
        """Fold one batch; return how many records were of unknown kinds. Raises LogUnreadable."""
        unknown = 0
        for key, value in batch.records:
            try:
                record = codec.decode(key, value)
            except codec.UnreadableRecord as error:
                raise LogUnreadable(str(error)) from error
            if record is None:
                unknown += 1
            else:
                state.put(record)
        return unknown
