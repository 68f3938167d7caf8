"""How many ids and transactions there may be: of the whole coordinator, and of one principal.

The log does not say whose a transactional id is. So an id counts for the principal that used it last since this process
started. A request beyond a bound is refused with POLICY_VIOLATION.
"""

import logging
from collections import deque
from collections.abc import Callable

from fencepost.coordinator.ports import Clock
from fencepost.coordinator.txn.causes import Caller
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.ids import TransactionalIds
from fencepost.coordinator.txn.state import Dead, Ongoing
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)
UNBOUNDED = -1


class TxnBounds:
    """Checks requests against the bounds. Without bounds for principals it keeps nothing."""

    def __init__(self, ids: TransactionalIds, clock: Clock, config: TxnConfig) -> None:
        self._known = ids
        self._clock = clock
        self._config = config
        self._owners: dict[str, object] = {}
        """Transactional id -> the principal that used it last."""
        self._ids: dict[object, set[str]] = {}
        """Principal -> its transactional ids; some may have expired."""
        self._open: dict[object, set[str]] = {}
        """Principal -> its ids with an open transaction; some may have ended."""
        self._producer_ids: dict[object, deque[int]] = {}
        """Principal -> when it received its latest producer ids, in ms."""

    def may_take_producer_id(self, caller: Caller | None) -> bool:
        """Whether the principal may have one more producer id without a transactional id; if so, count it."""
        config = self._config
        most = config.principal_max_producer_ids
        if most == UNBOUNDED or caller is None:
            return True
        taken = self._producer_ids.setdefault(caller.principal, deque())
        now_ms = self._clock.now_ms()
        while taken and now_ms - taken[0] >= config.producer_id_expiration_ms:
            taken.popleft()
        if len(taken) >= most:
            return _refuse(caller, f"it has {len(taken)} producer ids", "principal.max.producer.ids")
        taken.append(now_ms)
        return True

    def may_hold(self, transactional_id: str, caller: Caller | None) -> bool:
        """Whether the id is known, or one more id may be added: by the principal, and by all."""
        known, config = self._known, self._config
        is_new = isinstance(known.state_of(transactional_id), Dead)
        if len(known) >= config.max_transactional_ids and is_new:
            logger.warning("transactional id %r refused: %d ids are known already", transactional_id, len(known))
            return False
        most = config.principal_max_transactional_ids
        if most == UNBOUNDED or caller is None:
            return True
        held = self._ids.setdefault(caller.principal, set())
        if not self._has_room(held, transactional_id, most, lambda one: self._is_held(one, caller.principal)):
            what = f"it has {len(held)} transactional ids, {transactional_id!r} would be one more"
            return _refuse(caller, what, "principal.max.transactional.ids")
        self._owners[transactional_id] = caller.principal
        return True

    def may_join(self, transactional_id: str, partitions: frozenset[TopicPartition], caller: Caller | None) -> bool:
        """Whether the partitions may join the transaction: it stays small enough, and may begin if it is not open."""
        known, config = self._known, self._config
        state = known.state_of(transactional_id)
        joined = state.partitions | partitions if isinstance(state, Ongoing) else partitions
        if len(joined) > config.max_partitions_per_transaction:
            return False
        most = config.principal_max_open_transactions
        if most == UNBOUNDED or caller is None or isinstance(state, Ongoing):
            return True
        begun = self._open.setdefault(caller.principal, set())
        if not self._has_room(begun, transactional_id, most, lambda one: isinstance(known.state_of(one), Ongoing)):
            what = f"it has {len(begun)} open transactions, that of {transactional_id!r} would be one more"
            return _refuse(caller, what, "principal.max.open.transactions")
        return True

    def _is_held(self, transactional_id: str, principal: object) -> bool:
        """Whether the id is still the principal's. One that is gone is forgotten."""
        if isinstance(self._known.state_of(transactional_id), Dead):
            self._owners.pop(transactional_id, None)
        return self._owners.get(transactional_id) == principal

    @staticmethod
    def _has_room(counted: set[str], transactional_id: str, most: int, counts: Callable[[str], bool]) -> bool:
        """Add an id if there is room. Ids that no longer count are removed only where room is needed."""
        if transactional_id not in counted and len(counted) >= most:
            counted.intersection_update([one for one in counted if counts(one)])
            if len(counted) >= most:
                return False
        counted.add(transactional_id)
        return True


def _refuse(caller: Caller, what: str, setting: str) -> bool:
    """Log which bound refuses a request. Always False."""
    cause = {"cause": (setting, caller.principal)}  # the broker logs some lines of a cause, and counts the others
    logger.warning("%s refused at %s: %s (%s)", caller.principal, caller.client_host, what, setting, extra=cause)
    return False
