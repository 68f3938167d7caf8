"""The bounds of a principal and of all: the last that is let in, the first that is not, and what makes room again."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.coordinator.txn.bounds import TxnBounds
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.state import DEAD, TxnState
from tests.unit.txn.kit import P0, P1
from tests.unit.txn.states import EMPTY, ONGOING

ALICE, BOB = (
    cast(Any, SimpleNamespace(principal=name, client_host="h", client_id="c", api_key=22, api_version=5))
    for name in ("User:alice", "User:bob")
)
ON_P0 = frozenset({P0})


@dataclass
class Known:
    """The ids of the coordinator, and its clock."""

    states: dict[str, TxnState] = field(default_factory=dict)
    ms: int = 0

    def __len__(self) -> int:
        return len(self.states)

    def state_of(self, transactional_id: str) -> TxnState:
        return self.states.get(transactional_id, DEAD)

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def known() -> Known:
    return Known()


def bounds(known: Known, **settings: int) -> TxnBounds:
    return TxnBounds(cast(Any, known), known, TxnConfig(**settings))


def test_a_principal_gets_so_many_producer_ids_within_their_time(known: Known) -> None:
    """principal.max.producer.ids within producer.id.expiration.ms: each counts until exactly then."""
    limited = bounds(known, principal_max_producer_ids=2, producer_id_expiration_ms=100)
    assert limited.may_take_producer_id(ALICE)
    known.ms = 1
    assert limited.may_take_producer_id(ALICE)
    assert not limited.may_take_producer_id(ALICE)
    assert limited.may_take_producer_id(BOB), "each principal has its own"
    known.ms = 99
    assert not limited.may_take_producer_id(ALICE)
    known.ms = 100
    assert limited.may_take_producer_id(ALICE)
    assert not limited.may_take_producer_id(ALICE)


def test_without_a_bound_or_a_principal_nothing_is_counted(known: Known) -> None:
    free, limited = bounds(known), bounds(known, principal_max_producer_ids=0, principal_max_transactional_ids=0)
    assert all(free.may_take_producer_id(ALICE) for _ in range(1000))
    assert limited.may_take_producer_id(None)
    assert limited.may_hold("a", None)
    assert not limited.may_take_producer_id(ALICE)
    assert not limited.may_hold("a", ALICE)


def test_all_principals_together_hold_so_many_ids(known: Known) -> None:
    limited = bounds(known, max_transactional_ids=1)
    assert limited.may_hold("a", ALICE)
    known.states["a"] = EMPTY
    assert limited.may_hold("a", ALICE), "a known id is no further one"
    assert not limited.may_hold("b", ALICE)
    del known.states["a"]
    assert limited.may_hold("b", ALICE)


def test_an_id_counts_for_the_principal_that_took_it_last_until_it_is_gone(known: Known) -> None:
    limited = bounds(known, principal_max_transactional_ids=1)
    assert limited.may_hold("a", ALICE)
    known.states["a"] = EMPTY
    assert limited.may_hold("a", ALICE)
    assert not limited.may_hold("b", ALICE)
    assert limited.may_hold("a", BOB), "it is Bob's now"
    assert limited.may_hold("b", ALICE)
    known.states["b"] = EMPTY
    assert not limited.may_hold("c", ALICE)
    del known.states["b"]
    assert limited.may_hold("c", ALICE)


def test_a_principal_has_so_many_open_transactions(known: Known) -> None:
    limited = bounds(known, principal_max_open_transactions=1)
    known.states = {"a": EMPTY, "b": EMPTY}
    assert limited.may_join("a", ON_P0, ALICE)
    known.states["a"] = ONGOING
    assert limited.may_join("a", frozenset({P1}), ALICE), "an open one may grow"
    assert not limited.may_join("b", ON_P0, ALICE)
    assert limited.may_join("b", ON_P0, BOB)
    known.states["a"] = EMPTY
    assert limited.may_join("b", ON_P0, ALICE)


def test_a_transaction_has_so_many_partitions_with_those_it_has(known: Known) -> None:
    limited = bounds(known, max_partitions_per_transaction=1)
    assert limited.may_join("a", ON_P0, ALICE)
    known.states["a"] = ONGOING
    assert limited.may_join("a", ON_P0, ALICE)
    assert not limited.may_join("a", frozenset({P1}), ALICE)
