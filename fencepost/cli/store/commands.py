"""`fencepost store`: make, check and upgrade the database of a cluster, and check its object store."""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.connect import EXIT_FAILED, fail, print_json
from fencepost.cli.plain_text import counted, size
from fencepost.cli.store.options import EXIT_USAGE, SCHEMA, StoreAddresses, explained, store_options

if TYPE_CHECKING:
    from fencepost.broker.cluster.objects.object_store import Objects
    from fencepost.broker.cluster.verify.store_facts import Remark, StoreFacts

ALIVE_MS = 10_000
"""A broker that renewed its lease in this time is regarded as running."""


@click.group()
def store() -> None:
    """Prepare and check the stores of a cluster: PostgreSQL for the order, an object store for the records.

    `fencepost serve --store` creates the schema in an empty database, if its role may. So a first cluster needs none of
    these commands. Use `init` if brokers run with a role that may not create a schema.

    \b
    First steps: can brokers work with these stores?
      createdb fencepost
      fencepost store check --store postgresql://app@db/fencepost --objects s3://bucket/prefix
    The schema belongs to another role than the brokers':
      fencepost store init --store postgresql://owner@db/fencepost
      psql ... -c 'GRANT USAGE ON SCHEMA fencepost TO app;
                   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fencepost TO app'
    After an update of fencepost, with all brokers stopped:
      fencepost store upgrade --store postgresql://owner@db/fencepost
    After a dump was restored, with all brokers stopped:
      fencepost store take-over --store postgresql://app@db/restored --objects s3://bucket/prefix

    Passwords belong into ~/.pgpass, PGPASSWORD or a file of settings (--config): other users of the machine see the
    words of a command. No command prints a password. Credentials of the object store come from the usual variables,
    such as AWS_ACCESS_KEY_ID, or from the machine's role.

    Exit code 0: done, or all is well; 1: failed, or something is wrong; 2: wrong usage.
    """


@store.command("init", short_help="Create the schema in a database.")
@store_options
def init_command(addresses: StoreAddresses, as_json: bool) -> None:
    """Create the schema `fencepost` in a database. If it is there already, change nothing.

    \b
    Example:
      fencepost store init --store postgresql://owner@db/fencepost
    """
    with addresses.connection() as (connection, place):
        from fencepost.broker.cluster.database import schema

        created = schema.create_if_missing(connection, SCHEMA)
        schema.check_version(connection, SCHEMA)
        version = len(schema.migrations())
    answer = {"database": place, "schema": SCHEMA, "version": version, "created": created}
    _print(as_json, answer, f"{place}: schema {SCHEMA}, version {version}, {'created' if created else 'is there'}")


@store.command("upgrade", short_help="Upgrade the schema after an update of fencepost.")
@click.option("--force", is_flag=True, help="Do not look for running brokers.")
@store_options
def upgrade_command(addresses: StoreAddresses, force: bool, as_json: bool) -> None:
    """Run the migrations that the schema lacks, in one transaction. Stop all brokers first.

    Of two upgrades at once one waits for the other. A broker of the old version cannot connect to the new schema.
    New tables get the owner of the old ones. A role that had a right on all old tables gets it on the new ones.

    \b
    Example:
      fencepost store upgrade --store postgresql://owner@db/fencepost
    """
    with addresses.connection() as (connection, place):
        from fencepost.broker.cluster.database import schema
        from fencepost.broker.cluster.verify.store_facts import living_brokers

        found = schema.version_of(connection, SCHEMA)
        if found is None:
            schema.check_version(connection, SCHEMA)
        if found != len(schema.migrations()) and not force:
            living = living_brokers(connection, SCHEMA, ALIVE_MS)
            if living:
                names = ", ".join(map(str, living))
                fail(f"{place}: brokers run: {names}", f"stop them, wait {ALIVE_MS // 1000} s, and try again")
        before, after = schema.upgrade(connection, SCHEMA)
        schema.check_version(connection, SCHEMA)
    answer = {"database": place, "schema": SCHEMA, "version_before": before, "version": after}
    done = f"upgraded from version {before} to {after}" if before != after else f"version {after} is the newest"
    _print(as_json, answer, f"{place}: schema {SCHEMA}, {done}")


@store.command("check", short_help="Check whether brokers can work with the stores.")
@store_options
def check_command(addresses: StoreAddresses, as_json: bool) -> None:
    """Check whether brokers can work with the stores, and how fast. The check changes no table.

    It checks the schema and its version, the rights of the role, the server's settings, free connections, and the time
    of a commit. With --objects it writes, reads, lists and deletes a small object.

    `wrong` means that brokers cannot work, or that records may be lost: exit code 1. `advice` does not change the exit
    code.

    \b
    Examples:
      fencepost store check --store postgresql://app@db/fencepost
      fencepost store check --config server.properties --json
    """
    from fencepost.broker.cluster.engine import StoreUnavailable

    with addresses.connection() as (connection, place):
        from fencepost.broker.cluster.verify.store_facts import Remark, gather

        facts = gather(connection, SCHEMA)
    remarks, times = facts.remarks(), None
    if addresses.objects is not None:
        cluster_id = facts.contents.cluster_id if facts.contents is not None else None
        try:
            objects = addresses.opened_objects(cluster_id or "check")
            times = objects.check()
            remarks[:0] = _owner_remarks(addresses, objects) if cluster_id is not None else []
        except ValueError as error:
            fail(str(error), exit_code=EXIT_USAGE)
        except StoreUnavailable as error:
            remarks.insert(0, Remark(True, str(error)))
    if as_json:
        print_json(_as_object(place, facts, addresses.objects, times, remarks))
    else:
        click.echo("\n".join(_lines(place, facts, addresses.objects, times, remarks)))
    sys.exit(EXIT_FAILED if any(remark.wrong for remark in remarks) else 0)


@store.command("take-over", short_help="Make the objects belong to this database.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="How long to wait for the brokers of the other database. [default: until they cannot delete objects any more]",
)
@store_options
def take_over_command(addresses: StoreAddresses, wait: float | None, as_json: bool) -> None:
    """Make the objects belong to this database, and end the brokers of the database to which they belong now.

    The objects of a cluster belong to one database. A restored dump is another database, so its brokers do not start.
    Run this command if the cluster continues with the restored database. A standby that was promoted needs no command.

    Brokers of the other database end within seconds, also those on other machines, if they reach the objects. The
    command waits for that. Brokers of this database delete objects that only the other database knows, the first ones
    after a tenth of cluster.sweep.interval.ms: keep a copy of the objects if you may need a newer backup.

    \b
    Example:
      fencepost store take-over --store postgresql://app@db/restored --objects s3://bucket/prefix
    """
    from fencepost.broker.cluster.objects.owner import TAKE_OVER_SECONDS, BucketOwner, NotOwner

    if addresses.objects is None:
        raise click.UsageError("no object store is named: give --objects s3://BUCKET/PREFIX")
    with explained(), addresses.engine() as engine:
        cluster_id = engine.known_cluster_id()
        if cluster_id is None:
            fail(f"{engine.place}: no broker has used this database yet, so it has no objects", exit_code=EXIT_USAGE)
        objects = addresses.opened_objects(cluster_id)
        owner = BucketOwner(objects, engine.identity)
        try:
            owner.check()
            before = None
        except NotOwner as error:
            before = str(error)
            owner.take_over()
            time.sleep(TAKE_OVER_SECONDS if wait is None else wait)
            owner.check()  # the other database may have taken them back
        answer = {
            "database": engine.place,
            "objects": objects.place,
            "cluster": cluster_id,
            "changed": before is not None,
        }
    done = "belong to this database now" if before is not None else "belong to this database already"
    _print(as_json, answer, f"{answer['database']}: the objects at {answer['objects']} {done}")


def _print(as_json: bool, answer: Any, text: str) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(text)


def _owner_remarks(addresses: StoreAddresses, objects: "Objects") -> "list[Remark]":
    """Whether the objects belong to another database. Raises StoreUnavailable."""
    from fencepost.broker.cluster.objects.owner import BucketOwner, NotOwner, refused
    from fencepost.broker.cluster.verify.store_facts import Remark

    with addresses.engine() as engine:
        try:
            held = BucketOwner(objects, engine.identity).held()
        except NotOwner as error:
            return [Remark(True, str(error))]
        refusal = None if held is None else refused(engine.identity(), held, objects.place)
    return [] if refusal is None else [Remark(True, refusal)]


Times = tuple[float, float] | None
"""Seconds to write and to read a small object; None if that did not work."""


def _lines(place: str, facts: "StoreFacts", objects: str | None, times: Times, remarks: "list[Remark]") -> list[str]:
    contents, commit = facts.contents, facts.commit_ms
    version = "not there" if facts.version is None else f"version {facts.version}"
    lines = [
        f"database  {place}, PostgreSQL {facts.server}, role {facts.role}",
        f"schema    {SCHEMA}, {version}; this fencepost needs version {facts.wanted_version}",
    ]
    if contents is not None:
        lines.append(
            f"contents  cluster {contents.cluster_id or 'without an id yet'}, {counted(contents.brokers, 'broker')},"
            f" {counted(contents.logs, 'log')}, about {counted(contents.rows, 'row')} and"
            f" {counted(contents.objects, 'object')}, {size(contents.size_bytes)}"
        )
    lines.append("settings  " + ", ".join(f"{name}={value}" for name, value in facts.settings.items()))
    lines.append(f"          {counted(facts.free_connections, 'connection')} free")
    if commit is not None:
        lines.append(f"commit    {commit[0]:.2f} ms (median), {commit[1]:.2f} ms (maximum)")
    if times is not None:
        write_ms, read_ms = (1000 * seconds for seconds in times)
        lines.append(f"objects   {objects}: written in {write_ms:.1f} ms, read in {read_ms:.1f} ms, listed, deleted")
    lines += [f"{'wrong' if remark.wrong else 'advice'}: {remark.text}" for remark in remarks]
    if not any(remark.wrong for remark in remarks):
        lines.append("brokers can work with this database" + (" and these objects" if objects is not None else ""))
    return lines


def _as_object(
    place: str, facts: "StoreFacts", objects: str | None, times: Times, remarks: "list[Remark]"
) -> dict[str, Any]:
    known = facts._asdict()
    del known["lacking"]
    return {
        "database": place,
        **known,
        "missing_rights": [f"{right} on {one.thing}" for one in facts.lacking for right in one.rights],
        "missing_grants": [one.statement for one in facts.lacking],
        "contents": None if facts.contents is None else facts.contents._asdict(),
        "objects": None
        if objects is None
        else {
            "place": objects,
            "write_ms": None if times is None else times[0] * 1000,
            "read_ms": None if times is None else times[1] * 1000,
        },
        "remarks": [{"level": "wrong" if one.wrong else "advice", "text": one.text} for one in remarks],
    }
