"""What must be true of every world, whatever happened in it; each rule names what breaks it."""

from collections.abc import Mapping, Sequence

from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Log, Place, check
from tests.simulation.node_state import NodeState
from tests.simulation.sim_readers import RawBatch
from tests.simulation.whole_world import Fence, Outcome

_SHOWN = 3


def violations(outcome: Outcome) -> list[str]:
    """Everything that is wrong with a world; empty where nothing is."""
    found = list(outcome.broken)
    if not outcome.history.finals[READ_COMMITTED]:
        return [*found, "nothing was read at the end"]
    found += check(outcome.history).violations
    found += fences_broken(outcome.fences, outcome.raw)
    found += verdicts_broken(outcome.fences, outcome.raw)
    committed = outcome.history.finals[READ_COMMITTED]
    everything = outcome.history.finals[READ_UNCOMMITTED]
    for name, logs in committed.items():
        found += markers_broken(outcome.raw, logs, f"{name}, read_committed")
    for name, logs in everything.items():
        found += [
            f"{name}: {place} does not show what its batches hold"
            for place, log in logs.items()
            if log != [value for batch in outcome.raw.get(place, ()) for value in batch.values]
        ]
    found += [f"at the end, all faults long over, {one}" for one in outcome.still_open]
    found += replay_broken(outcome.live, outcome.rebuilt)
    return found


def fences_broken(fences: Sequence[Fence], raw: Mapping[Place, Sequence[RawBatch]]) -> list[str]:
    """At most one epoch writes after a fence (rows P3, T2): nothing older stands behind the log's end as it was."""
    ids: dict[str, set[int]] = {}
    for fence in fences:
        ids.setdefault(fence.transactional_id, set()).add(fence.producer_id)
    found = []
    for fence in fences:
        identity = fence.producer_id, fence.epoch
        for place, batches in raw.items():
            found += [
                f"{fence.transactional_id}: {identity} had taken over, then {batch[2:4]} wrote {batch.values[:1]}"
                f" at {place} offset {batch.base_offset}"
                for batch in batches
                if batch.commits is None
                and batch.base_offset >= fence.ends.get(place, batch.base_offset + 1)
                and batch.producer_id in ids[fence.transactional_id]
                and (batch.producer_id, batch.epoch) < identity
            ]
    return found


def verdicts_broken(fences: Sequence[Fence], raw: Mapping[Place, Sequence[RawBatch]]) -> list[str]:
    """In the second protocol each transaction has its own epoch, so all markers of one epoch say the same (T7)."""
    ids = {fence.producer_id: fence.transactional_id for fence in fences if fence.version == 2}
    verdicts: dict[tuple[int, int], dict[bool, Place]] = {}
    for place, batches in raw.items():
        for batch in batches:
            if batch.commits is not None and batch.producer_id in ids:
                verdicts.setdefault((batch.producer_id, batch.epoch), {})[batch.commits] = place
    return [
        f"{ids[identity[0]]}: {identity} is committed at {said[True]} and aborted at {said[False]}"
        for identity, said in verdicts.items()
        if len(said) == 2
    ]


def markers_broken(raw: Mapping[Place, Sequence[RawBatch]], logs: Mapping[Place, Log], name: str) -> list[str]:
    """What read_committed showed must be what the markers in the log say, found without index or aborted list (I1)."""
    return [
        f"{name}: {place} shows {_first_difference(log, by_markers(raw.get(place, ())))}"
        for place, log in logs.items()
        if log != by_markers(raw.get(place, ()))
    ]


def by_markers(batches: Sequence[RawBatch]) -> Log:
    """The committed records of a log, in order, by its markers alone; those of open transactions are left out."""
    verdicts: dict[int, bool] = {}
    kept: list[RawBatch] = []
    for batch in reversed(batches):
        if batch.commits is not None:
            verdicts[batch.producer_id] = batch.commits
        elif verdicts.get(batch.producer_id, False):
            kept.append(batch)
    return [value for batch in reversed(kept) for value in batch.values]


def replay_broken(live: NodeState | None, rebuilt: NodeState | None) -> list[str]:
    """The state of the broker is what its logs give when they are replayed from their first batch."""
    if live is None or rebuilt is None:
        return ["the broker's state was not seen at the end"]
    return [
        f"{name} is {live.get(name)!r}, and by replay from zero {rebuilt.get(name)!r}"
        for name in sorted(live.keys() | rebuilt.keys())
        if live.get(name) != rebuilt.get(name)
    ][:_SHOWN]


def _first_difference(log: Log, expected: Log) -> str:
    for one, other in zip(log, expected, strict=False):
        if one != other:
            return f"{one} where the markers say {other}"
    return f"{len(log)} records where the markers say {len(expected)}"
