"""`fencepost cluster owners|drain`: who leads what in a cluster over PostgreSQL, as the database has it."""

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import fail, print_json
from fencepost.cli.plain_text import counted, table
from fencepost.cli.store.options import StoreAddresses, explained, store_options
from fencepost.extras import needed_for

if TYPE_CHECKING:
    from fencepost.broker.cluster.database.postgres import PostgresEngine
    from fencepost.broker.cluster.engine import Head, Member, Slot

LEASE_MS = 3000
"""The default of cluster.lease.ms: the database does not have the brokers' setting."""
LOOK_SECONDS = 0.5
ADDRESS_MAX = 60


@click.command("owners", short_help="Show which broker owns which slots and partitions, and why some have no leader.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option("--lease-ms", default=LEASE_MS, show_default=True, help="The brokers' cluster.lease.ms.")
@store_options
def owners_command(addresses: StoreAddresses, as_json: bool, topics: tuple[str, ...], lease_ms: int) -> None:
    """Show the brokers of a cluster over PostgreSQL, how much each owns, and why some partitions have no leader.

    The database answers, so it works while no broker does. With topics it lists their partitions. Exit code 1: some
    partitions have no leader.

    \b
    Examples:
      fencepost cluster owners --store postgresql://app@db/fencepost
      fencepost cluster owners --store postgresql://app@db/fencepost orders
    """
    from fencepost.broker.cluster.serving.members import problems

    engine = _engine(addresses)
    with explained():
        members, slots, heads = engine.members(), engine.slots(), engine.heads()
    wrong = problems(members, slots, lease_ms)
    chosen = [head for head in heads if head.name.rpartition("-")[0] in topics]
    if as_json:
        print_json(_as_object(members, slots, heads, chosen, wrong, lease_ms))
    else:
        click.echo(_brokers(members, slots, heads, lease_ms))
        if chosen:
            click.echo()
            click.echo(table(("partition", "slot", "broker", "epoch", "end"), _partitions(chosen, slots)))
    missing = sorted(set(topics) - {head.name.rpartition("-")[0] for head in chosen})
    if missing:
        fail(f"the database has no records of {', '.join(missing)}")
    if wrong:
        fail("\n".join(wrong))


@click.command("drain", short_help="Have a broker hand over all that it leads, before it is stopped for good.")
@click.argument("broker", type=int)
@click.option("--undo", is_flag=True, help="Let the broker own slots again.")
@click.option("--wait", default=60, show_default=True, help="Seconds to wait until it owns none. 0: do not wait.")
@store_options
def drain_command(addresses: StoreAddresses, as_json: bool, broker: int, undo: bool, wait: int) -> None:
    """Have a broker hand its slots over to the others, one by one, while clients work. It owns none until --undo.

    To stop a broker, SIGTERM is enough. Drain one that is to run without load, or that has to go slowly.

    \b
    Examples:
      fencepost cluster drain 3 --store postgresql://app@db/fencepost
      fencepost cluster drain 3 --undo --store postgresql://app@db/fencepost
    """
    engine = _engine(addresses)
    with explained():
        if not engine.drain(broker, not undo):
            fail(f"no broker {broker} ever joined this cluster", "`fencepost cluster owners` lists them")
        deadline, left = time.monotonic() + wait, _owned(engine, broker)
        with click.progressbar(length=left, label=f"broker {broker}", hidden=undo or not wait or as_json) as bar:
            while left and not undo and time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                now = _owned(engine, broker)
                bar.update(max(0, left - now))
                left = now
    if as_json:
        print_json({"broker": broker, "draining": not undo, "slots": left})
    elif undo:
        click.echo(f"Broker {broker} may own slots again.")
    else:
        click.echo(f"Broker {broker} owns {counted(left, 'slot')}.")
    if left and wait and not undo:
        fail(
            f"broker {broker} still owns {counted(left, 'slot')}", "is another broker ready? `fencepost cluster owners`"
        )


def _engine(addresses: StoreAddresses) -> "PostgresEngine":
    with needed_for("--store", "cluster", fail):
        from fencepost.broker.cluster.database.postgres import PostgresEngine
    with explained():
        return PostgresEngine(addresses.database)


def _owned(engine: "PostgresEngine", broker: int) -> int:
    return sum(slot.broker == broker for slot in engine.slots())


def _brokers(members: "list[Member]", slots: "list[Slot]", heads: "list[Head]", lease_ms: int) -> str:
    from fencepost.broker.cluster.serving.members import state_of

    owned, logs = _counts(slots, heads)
    rows = [
        (one.broker, owned[one.broker], logs[one.broker], state_of(one, owned[one.broker], lease_ms), _address(one))
        for one in members
    ]
    return table(("broker", "slots", "partitions", "state", "address"), rows)


def _counts(slots: "list[Slot]", heads: "list[Head]") -> tuple[Counter[int | None], Counter[int | None]]:
    """The slots and the partitions of each broker."""
    owner = [slot.broker for slot in slots]
    return Counter(owner), Counter(owner[head.log % len(owner)] for head in heads)


def _address(member: "Member") -> str:
    listeners = json.loads(member.addresses)["listeners"]
    return ", ".join(f"{host}:{port}" for host, port in listeners.values())[:ADDRESS_MAX]


def _partitions(heads: "list[Head]", slots: "list[Slot]") -> list[tuple[object, ...]]:
    def number(head: "Head") -> tuple[str, int]:
        topic, _, partition = head.name.rpartition("-")
        return topic, int(partition)

    rows: list[tuple[object, ...]] = []
    for head in sorted(heads, key=number):
        slot = slots[head.log % len(slots)]
        rows.append((head.name, slot.slot, "none" if slot.broker is None else slot.broker, slot.epoch, head.next))
    return rows


def _as_object(
    members: "list[Member]",
    slots: "list[Slot]",
    heads: "list[Head]",
    chosen: "list[Head]",
    wrong: list[str],
    lease_ms: int,
) -> dict[str, Any]:
    from fencepost.broker.cluster.serving.members import state_of

    owned, logs = _counts(slots, heads)
    names = ("partition", "slot", "broker", "epoch", "end")
    return {
        "brokers": [
            {
                "broker": one.broker,
                "state": state_of(one, owned[one.broker], lease_ms),
                "slots": owned[one.broker],
                "partitions": logs[one.broker],
                "draining": one.draining,
                "idle_ms": one.idle_ms,
                **json.loads(one.addresses),
            }
            for one in members
        ],
        "partitions": [dict(zip(names, row, strict=True)) for row in _partitions(chosen, slots)],
        "problems": wrong,
    }
