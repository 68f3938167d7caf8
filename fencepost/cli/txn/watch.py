"""`fencepost txn watch`: the open transactions of a cluster, oldest first, in a view that refreshes itself."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.connect import Broker, broker_options
from fencepost.cli.parameters import SecondsType
from fencepost.cli.plain_text import counted, json_value, moment, now_ms, places, table
from fencepost.protocol.admin_enums import OPEN_STATES
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fencepost.client.admin import Admin
    from fencepost.client.admin.types import TransactionDescription, TransactionListing


class View(NamedTuple):
    """The state at one refresh."""

    now_ms: int
    states: dict[str, int]
    open: list[Any]
    left_out: int


@click.command()
@click.option(
    "--interval",
    type=SecondsType(at_least=0.1),
    default=2.0,
    show_default=True,
    metavar="DURATION",
    help="Refresh this often.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many refreshes. [default: until Ctrl-C]")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Describe at most this many open transactions.",
)
@broker_options
def watch(interval: float, count: int | None, limit: int, broker: Broker) -> None:
    """Watch the open transactions: the number of ids in each state, and the oldest open transactions.

    With --json each refresh is one line. Press Ctrl-C to stop.
    """
    import trio

    async def query(admin: "Admin") -> None:
        looks = 0
        while True:
            view = await look(admin, limit)
            _show(view, broker.bootstrap, broker.as_json)
            looks += 1
            if looks == count:
                return
            await trio.sleep(interval)

    broker.ask(query)


async def look(admin: "Admin", limit: int) -> View:
    lines = await admin.list_transactions()
    is_open = [line for line in lines if line.state in OPEN_STATES]
    found = await described(admin, is_open[:limit])
    found.sort(key=lambda one: (one.started is None, one.started))
    states = Counter(line.state for line in lines)
    return View(now_ms(), dict(sorted(states.items())), found, max(0, len(is_open) - limit))


async def described(admin: "Admin", lines: "Iterable[TransactionListing]") -> "list[TransactionDescription]":
    """The open transactions among these, without ids that expired meanwhile. Raises KafkaError."""
    from fencepost.client.admin import ItemsFailedError

    names = [line.transactional_id for line in lines if line.state in OPEN_STATES]
    try:
        return list((await admin.describe_transactions(names)).values())
    except ItemsFailedError as some:
        failed = [one for one in some.errors.values() if one.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
        if failed:
            raise failed[0] from None
        return list(some.results.values())


def _show(view: View, bootstrap: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(json_value(view)))
        return
    click.clear()
    click.echo(view_text(view, bootstrap))


def view_text(view: View, bootstrap: str) -> str:
    from fencepost.cli.txn.text import client_of, open_for, times_out

    states = ", ".join(f"{count} {state}" for state, count in view.states.items()) or "no transactional ids"
    lines = [f"{moment(view.now_ms)}  {bootstrap}  {states}", ""]
    if not view.open:
        return "\n".join([*lines, "No transaction is open."])
    rows = [
        (
            one.transactional_id,
            f"{one.producer_id}:{one.producer_epoch}",
            one.state,
            open_for(one.started, view.now_ms),
            times_out(one, view.now_ms),
            len(one.partitions),
            places(one.blocks),
            None if one.history is None else client_of(one.history),
        )
        for one in view.open
    ]
    head = ("TRANSACTIONAL.ID", "PRODUCER", "STATE", "OPEN FOR", "TIMES OUT", "PARTITIONS", "BLOCKS", "CLIENT")
    lines.append(table(head, rows))
    if view.left_out:
        lines.append(f"and {counted(view.left_out, 'more open transaction')} (--limit)")
    return "\n".join(lines)
