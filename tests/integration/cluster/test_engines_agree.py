"""PostgreSQL does what the specification does: the same commands to both, and the same answers, errors and tables."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.broker.cluster.engine import (
    Changed,
    ClaimLost,
    Conflict,
    Engine,
    Fenced,
    LogIdTaken,
    Member,
    Placement,
    Row,
    RowKind,
    StillAlive,
)
from tests.kit.engine_commands import Command, Commands
from tests.kit.engine_worlds import SimWorld

if TYPE_CHECKING:
    from tests.kit.postgres_world import PostgresWorld

SEEDS = (1, 2, 3)
COMMANDS = 1500
MINUTE_MS = 60_000
REFUSALS = (Fenced, Conflict, ClaimLost, Changed, StillAlive, LogIdTaken)
MET_IN_EVERY_RUN = {
    *(("commit", kind) for kind in ("tuple", "Fenced", "Conflict", "ClaimLost", "LogIdTaken")),
    *(("replace", kind) for kind in ("NoneType", "Fenced", "Changed", "ClaimLost")),
    *((method, kind) for method in ("open_session", "join") for kind in ("Session",)),
    *((method, kind) for method, kinds in (("take_over", ("list", "Fenced")), ("drain", ("bool",))) for kind in kinds),
    ("secret", "bytes"),
    *((method, "NoneType") for method in ("raise_start", "drop", "release", "give_up", "ready", "renew", "forget")),
    ("join", "StillAlive"),
}
"""Commands and answers: a run without one of them would prove less than it says."""


def answer_of(engine: Engine, command: Command) -> Any:
    """What the command gives or raises, without what depends on the clock."""
    try:
        answer = getattr(engine, command.method)(*command.arguments)
    except StillAlive as error:
        return StillAlive, error.address
    except Conflict as error:
        return Conflict, error.logs
    except LogIdTaken as error:
        return LogIdTaken, error.log, str(error)
    except REFUSALS as error:
        return (type(error),)
    if command.method == "members":
        members: list[Member] = answer
        return [member._replace(idle_ms=0) for member in members]
    return answer


def kind_of(answer: Any) -> str:
    is_refusal = isinstance(answer, tuple) and answer and answer[0] in REFUSALS
    return str(answer[0].__name__) if is_refusal else type(answer).__name__


def tables_of_sim(world: SimWorld) -> dict[str, list[Any]]:
    database = world.database
    return {
        "broker": [(broker, *row[:4], *row[5:]) for broker, row in sorted(database.brokers.items())],
        "slot": [tuple(slot) for slot in database.slots],
        "head": [tuple(head) for _, head in sorted(database.heads.items())],
        "entry": [(log, row) for log, rows in sorted(database.rows.items()) for row in rows],
        "object": [(number, *row[:2]) for number, row in sorted(database.objects.items())],
        "snapshot": [tuple(snapshot) for _, snapshot in sorted(database.snapshots.items())],
    }


def tables_of_postgres(world: "PostgresWorld") -> dict[str, list[Any]]:
    def table(columns: str, name: str) -> Sequence[tuple[Any, ...]]:
        return world.execute(f"SELECT {columns} FROM {{}}.{name} ORDER BY 1, 2")

    def entry(log: int, base: int, count: int, kind: int, epoch: int, *rest: Any) -> tuple[int, Row]:
        held, position, size, timestamp, batches, ids, heads, aborted, inline, checksum = rest
        facts = (Placement(held, position, size), timestamp, batches, tuple(ids))
        return log, Row(base, count, RowKind(kind), epoch, *facts, heads, aborted, inline, checksum)

    brokers = table(
        "id, incarnation, session, commit_seq, bases, has_left, addresses, draining, ready_incarnation, beats", "broker"
    )
    return {
        "broker": [(*row[:4], tuple(row[4]), *row[5:]) for row in brokers],
        "slot": list(table("slot, broker, epoch", "slot")),
        "head": list(table("log, name, topic_id, next, start, size_bytes", "head")),
        "entry": [entry(*row) for row in table("*", "entry")],
        "object": list(table("id, state, live", "object")),
        "snapshot": list(table("log, base, kind, value", "snapshot")),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_both_databases_give_the_same_answers(seed: int, world: "PostgresWorld") -> None:
    """Each seed is a life of a small cluster; every fiftieth command the tables are compared, too."""
    sim = SimWorld()
    ours, theirs = sim.engine(), world.engine()
    commands, met = Commands(seed, sim.database), Counter[tuple[str, str]]()
    for number in range(1, COMMANDS + 1):
        minutes = commands.minutes_that_pass()
        if minutes:
            sim.age(minutes * MINUTE_MS)
            world.age(minutes * MINUTE_MS)
        command = commands.draw()
        expected = answer_of(ours, command)
        assert answer_of(theirs, command) == expected, f"seed {seed}, command {number}: {command}"
        met[command.method, kind_of(expected)] += 1
        if number % 50 == 0:
            assert tables_of_postgres(world) == tables_of_sim(sim), f"seed {seed}, command {number}: {command}"
    assert met.keys() >= MET_IN_EVERY_RUN, f"seed {seed} met only {met}"
