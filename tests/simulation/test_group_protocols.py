"""Worlds of one group of the consumer protocol, and of both protocols with the group made over again and again.

No partition has two owners, committed offsets never go back or past what was processed, every record counts once where
offsets are committed in transactions, epochs never go back over a restart, all comes to rest (rows G4 to G6, G8, T5,
T6). For each of these a broker is made wrong on purpose, and found.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.coordinator_logs import LogTicket
from fencepost.coordinator.group.consumer import migration, offsets, reconcile
from fencepost.coordinator.group.consumer_service import ConsumerGroups
from fencepost.coordinator.group.offsets import OffsetStore
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC
from tests.simulation.group_world import run_group_world
from tests.simulation.spoilt_offsets import positions_are_told_while_a_transaction_decides, some_offsets_are_not_stored

SEEDS = int(os.environ.get("FENCEPOST_GROUP_PROTOCOL_SEEDS", "16"))
"""Of each kind."""
Spoil = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["consumer", "mixed"])
def test_no_rule_is_broken_in_any_of_these_worlds_g4_g5_g6_g8_t5_t6(protocol: str) -> None:
    """In a process of its own: a seed is the same world only under the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation.group_world", "--protocol", protocol, "--seeds", str(SEEDS)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SEEDS} worlds, 0 wrong" in run.stdout


@pytest.mark.parametrize("protocol", ["consumer", "mixed"])
def test_two_runs_of_one_seed_are_the_same_world(protocol: str) -> None:
    one, other = run_group_world(5, protocol), run_group_world(5, protocol)
    assert len(one.trace) > 10
    assert one == other
    assert run_group_world(6, protocol).trace != one.trace


def partitions_are_given_before_they_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_is_free", lambda *_args: True)


def who_says_nothing_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def still_has(reported: Any, revoking: Any) -> bool:
        return reported is not None and whole(reported, revoking)

    whole = reconcile._still_has
    monkeypatch.setattr(reconcile, "_still_has", still_has)


def anybody_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "check_commit", lambda *_args, **_more: ErrorCode.NONE)


def offsets_are_told_one_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(self: Any, *args: Any) -> Any:
        return [one._replace(offset=one.offset + 1) if one.offset > 0 else one for one in whole(self, *args)]

    whole = OffsetStore.fetch
    monkeypatch.setattr(OffsetStore, "fetch", fetch)


def epochs_begin_anew_with_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(self: Any, shard: Any) -> None:
        for group in shard.state.consumers.values():
            group.epoch = group.assignment_epoch = 1
        whole(self, shard)

    whole = ConsumerGroups.loaded
    monkeypatch.setattr(ConsumerGroups, "loaded", loaded)


def answers_leave_before_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of groups alone: without metadata and transactions on the disk, the worlds end before they show anything."""
    waits, is_durable = LogTicket.durable, LogTicket.is_durable

    def of_group(ticket: LogTicket) -> bool:
        return ticket._ticket.log.tp.topic == GROUP_TOPIC

    async def durable(ticket: LogTicket) -> None:
        if not of_group(ticket):
            await waits(ticket)

    monkeypatch.setattr(LogTicket, "is_durable", property(lambda ticket: of_group(ticket) or is_durable.fget(ticket)))
    monkeypatch.setattr(LogTicket, "durable", durable)


def no_member_is_put_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroups, "expire", lambda *_args: None)


def a_group_made_over_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "with_epoch", lambda *_args: {})


SPOILT: list[tuple[Spoil, str, str]] = [
    (partitions_are_given_before_they_are_released, "consumer", "owns"),
    (who_says_nothing_has_nothing, "consumer", "owns"),
    (anybody_commits, "consumer", "is acknowledged after"),
    (some_offsets_are_not_stored, "consumer", "reads offset"),
    (offsets_are_told_one_too_high, "consumer", "nobody has processed that"),
    (positions_are_told_while_a_transaction_decides, "consumer", "processed more than once"),
    (epochs_begin_anew_with_the_broker, "consumer", "is told of epoch"),
    (answers_leave_before_the_disk, "consumer", "is told of epoch"),
    (no_member_is_put_out, "consumer", "come to rest"),
    (a_group_made_over_has_nothing, "mixed", "owns"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("spoil", "protocol", "finding"), SPOILT)
def test_a_broker_that_is_wrong_on_purpose_is_found(
    monkeypatch: pytest.MonkeyPatch, spoil: Spoil, protocol: str, finding: str
) -> None:
    """G4: otherwise a search that finds nothing would prove nothing."""
    spoil(monkeypatch)
    for seed in range(400):
        if any(finding in text for text in run_group_world(seed, protocol).broken):
            return
    pytest.fail(f"400 worlds, and none of them says: {finding}")
