"""The database of a cluster in PostgreSQL: every method is one statement, and one round trip.

The transactions are functions of the schema (migrations/*.sql). This module imports psycopg.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from fencepost.broker.cluster.database import connection, grants, schema
from fencepost.broker.cluster.database.statements import Statements
from fencepost.broker.cluster.database.table_facts import ObjectUse, TableSize
from fencepost.broker.cluster.database.values import Blobs, array, columns, row_of, session_of
from fencepost.broker.cluster.engine import (
    ROWS_MAX,
    SLOTS,
    Commit,
    Fenced,
    Head,
    Identity,
    Member,
    Proposed,
    Replacement,
    Row,
    SchemaMismatch,
    Session,
    Slot,
    Snapshot,
    Span,
)
from fencepost.broker.cluster.objects.claims import random_ids
from fencepost.broker.cluster.objects.owner import DatabaseIdentity


class PostgresEngine(Statements):
    """`Engine` on one connection. Methods raise SchemaMismatch, too."""

    def __init__(self, conninfo: str, schema: str = "fencepost", first_id: Callable[[int], int] = random_ids) -> None:
        """`first_id` gets a number of ids, and returns the first of that many for a claim."""
        super().__init__(conninfo, schema)
        self._first_id = first_id

    def create_schema(self) -> bool:
        """Create the schema in a database that has none; returns whether there was none. Raises SchemaMismatch."""
        try:
            with connection.connect(self._parameters) as opened:
                return schema.create_if_missing(opened, self._schema)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def check_rights(self) -> None:
        """Raises SchemaMismatch unless this role has all rights that a broker needs; its text has the GRANTs."""
        with self._lock:
            try:
                opened = self._opened()
                found = grants.lacking(opened, self._schema)
                if found:
                    raise SchemaMismatch(f"{self.place}: {grants.sentence(opened.info.user, found)}")
            except psycopg.Error as error:
                raise self._translated(error) from error

    def known_cluster_id(self) -> str | None:
        """The cluster's id; None if no broker has used the database yet."""
        ((identifier,),) = self._run("SELECT id FROM {}.cluster")
        return None if identifier is None else str(identifier)

    def identity(self) -> DatabaseIdentity:
        """What tells this database from its copies. Any role may ask for it."""
        # The timeline of the last checkpoint would still be the old one for a moment after a promotion.
        ((system, oid, timeline),) = self._run(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()), oid::bigint,"
            " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer"
            " FROM pg_database WHERE datname = current_database()"
        )
        return DatabaseIdentity(str(system), int(oid), int(timeline), self.place)

    @contextmanager
    def at_one_instant(self) -> Iterator[None]:
        """All reads within the block see the database as it is at the first one. For one thread, which only reads."""
        self._control(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            self._control(b"ROLLBACK")

    def table_sizes(self) -> list[TableSize]:
        """How large the tables are, as the server last estimated it."""
        found = self._run(
            "SELECT relname::text, greatest(reltuples, 0)::bigint, pg_total_relation_size(oid)"
            " FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY relname",
            sql.Identifier(self._schema).as_string(None),
        )
        return [TableSize(*table) for table in found]

    def instant(self) -> str:
        """When the transaction began, by the database's clock: as in `2026-03-01 12:30:00 UTC`."""
        ((found,),) = self._run(
            "SELECT to_char(transaction_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"')"
        )
        return str(found)

    def object_uses(self) -> list[ObjectUse]:
        """Every object to which a row of any log refers. Reads all rows."""
        found = self._run(
            "SELECT used.object, object.state, coalesce(object.live, 0), used.n FROM (SELECT object, count(*) AS n"
            " FROM {}.entry WHERE object <> 0 GROUP BY object) AS used LEFT JOIN {}.object ON object.id = used.object"
        )
        return [ObjectUse(*use) for use in found]

    def position(self) -> int:
        ((found,),) = self._run("SELECT {}.fp_position()")
        return int(found)

    def reset(self, known_life: int) -> None:
        self._run("SELECT {}.fp_reset(%s)", known_life)

    # Brokers and slots

    def cluster_id(self, wanted: str) -> str:
        ((identifier,),) = self._run("UPDATE {}.cluster SET id = coalesce(id, %s) RETURNING id", wanted)
        return str(identifier)

    def join(self, broker: int, addresses: str, lease_ms: int) -> Session:
        self._run("SELECT {}.fp_bound_leases()")
        ((incarnation, *rest),) = self._run("SELECT * FROM {}.fp_join(%s, %s, %s)", broker, addresses, lease_ms)
        return session_of(broker, incarnation, *rest)

    def open_session(self, identity: Identity) -> Session:
        found = self._run(
            "UPDATE {}.broker SET session = session + 1, seen = clock_timestamp() WHERE id = %s AND incarnation = %s"
            " RETURNING session, commit_seq, bases",
            *identity[:2],
        )
        if not found:
            raise Fenced(f"broker {identity.broker} with incarnation {identity.incarnation} is fenced")
        return session_of(identity.broker, identity.incarnation, *found[0])

    def renew(self, identity: Identity) -> None:
        self._run("SELECT {}.fp_renew(%s, %s, %s)", *identity)

    def take_over(self, identity: Identity, slots: Collection[int], lease_ms: int) -> list[Slot]:
        taken = self._run("SELECT * FROM {}.fp_take_over(%s, %s, %s, %s, %s)", *identity, array(slots), lease_ms)
        return [Slot(*slot) for slot in taken]

    def release(self, identity: Identity) -> None:
        self._run("SELECT {}.fp_release(%s, %s, %s)", *identity)

    def ready(self, identity: Identity) -> None:
        self._run("SELECT {}.fp_ready(%s, %s, %s)", *identity)

    def give_up(self, identity: Identity, slots: Collection[int]) -> None:
        self._run("SELECT {}.fp_give_up(%s, %s, %s, %s)", *identity, array(slots))

    def drain(self, broker: int, draining: bool) -> bool:
        found = self._run("UPDATE {}.broker SET draining = %s WHERE id = %s RETURNING id", draining, broker)
        return bool(found)

    def secret(self, wanted: bytes) -> bytes:
        ((found,),) = self._run(
            "INSERT INTO {}.secret AS held (value) VALUES (%s)"
            " ON CONFLICT (only_row) DO UPDATE SET value = held.value RETURNING value",
            wanted,
        )
        return bytes(found)

    def members(self) -> list[Member]:
        found = self._run(
            "SELECT id, incarnation, (extract(epoch FROM clock_timestamp() - seen) * 1000)::bigint, has_left,"
            " addresses, draining, ready_incarnation IS NOT DISTINCT FROM incarnation FROM {}.broker ORDER BY id"
        )
        return [Member(*member) for member in found]

    def slots(self) -> list[Slot]:
        return [Slot(*slot) for slot in self._run("SELECT slot, broker, epoch FROM {}.slot ORDER BY slot")]

    # Order

    def commit(self, commit: Commit) -> tuple[int, ...]:
        appends = commit.appends
        new_logs = [append.new_log for append in appends]
        ((bases,),) = self._execute(
            "SELECT {}.fp_append(%s, %s, %s, %s, %s" + ", %s" * 18 + ")",
            *commit.identity,
            commit.seq,
            array(commit.objects),
            array(append.log for append in appends),
            array(append.expected for append in appends),
            array("t" if append.fixed else "f" for append in appends),
            [None if new is None else new.name for new in new_logs] if any(new_logs) else "{}",
            Blobs(None if new is None else new.topic_id for new in new_logs),
            *columns([append.row for append in appends]),
        )
        return tuple(bases)

    # Reading

    def heads(self, slots: Collection[int] | None = None) -> list[Head]:
        return self._heads(f"log %% {SLOTS}", range(SLOTS) if slots is None else slots)

    def heads_of(self, logs: Collection[int]) -> list[Head]:
        return self._heads("log", logs)

    def _heads(self, key: str, among: Collection[int]) -> list[Head]:
        found = self._run(
            f"SELECT log, name, topic_id, next, start, size_bytes FROM {{}}.head WHERE {key} = ANY (%s::bigint[])"
            " ORDER BY log",
            array(among),
        )
        return [Head(*head) for head in found]

    def rows(self, log: int, start: int, end: int, inline: bool = False, limit: int = ROWS_MAX) -> list[Row]:
        return self.many_rows([Span(log, start, end)], inline, limit)[0]

    def many_rows(self, spans: Sequence[Span], inline: bool = False, limit: int = ROWS_MAX) -> list[list[Row]]:
        found = self._run(
            "SELECT number, entry.* FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])"
            " WITH ORDINALITY AS span (log, from_offset, to_offset, number)"
            " CROSS JOIN LATERAL (SELECT base, count, kind, leader_epoch, object, position, size_bytes, max_timestamp,"
            " batches, producer_ids, heads, aborted, "
            + ("inline" if inline else "NULL::bytea")
            + ", checksum FROM {}.entry"
            " WHERE log = span.log AND base < to_offset AND base + count > greatest(from_offset, base)"
            " AND base >= coalesce((SELECT max(base) FROM {}.entry WHERE log = span.log AND base <= from_offset), 0)"
            " ORDER BY base LIMIT %s) AS entry WHERE from_offset < to_offset ORDER BY number, base",
            array(span.log for span in spans),
            array(span.start for span in spans),
            array(span.end for span in spans),
            limit,
        )
        rows: list[list[Row]] = [[] for _ in spans]
        for number, *values in found:
            rows[number - 1].append(row_of(*values))
        return rows

    def snapshots(self, logs: Collection[int], kind: str) -> list[Snapshot]:
        found = self._run(
            "SELECT log, base, kind, value FROM {}.snapshot WHERE log = ANY (%s::bigint[]) AND kind = %s ORDER BY log",
            array(logs),
            kind,
        )
        return [Snapshot(*snapshot) for snapshot in found]

    # Growth

    def raise_start(self, identity: Identity, starts: Sequence[tuple[int, int]]) -> None:
        logs, offsets = array(log for log, _ in starts), array(start for _, start in starts)
        self._run("SELECT {}.fp_raise_start(%s, %s, %s, %s, %s)", *identity, logs, offsets)

    def replace(self, identity: Identity, replacement: Replacement) -> None:
        log, start, end, bases, rows, objects, snapshots = replacement
        self._run(
            "SELECT {}.fp_replace(%s, %s, %s, %s, %s, %s, %s, %s, %s" + ", %s" * 17 + ")",
            *identity,
            array(objects),
            log,
            start,
            end,
            array(sorted(bases)),
            array(row.base for row in rows),
            *columns(rows),
            array(snapshot.log for snapshot in snapshots),
            [snapshot.kind for snapshot in snapshots],
            array(snapshot.base for snapshot in snapshots),
            Blobs(snapshot.value for snapshot in snapshots),
        )

    def drop(self, identity: Identity, logs: Collection[int]) -> None:
        self._run("SELECT {}.fp_drop(%s, %s, %s, %s)", *identity, array(logs))

    # Proposals

    def propose(self, log: int, value: bytes) -> int:
        ((number,),) = self._run("INSERT INTO {}.proposal (log, value) VALUES (%s, %s) RETURNING id", log, value)
        return int(number)

    def proposed(self) -> list[Proposed]:
        return [
            Proposed(*found)
            for found in self._run("SELECT id, log, value FROM {}.proposal WHERE answer IS NULL ORDER BY id")
        ]

    def answer(self, identity: Identity, number: int, answer: str) -> None:
        self._run("SELECT {}.fp_answer(%s, %s, %s, %s, %s)", *identity, number, answer)

    def answer_to(self, number: int) -> str | None:
        found = self._run("SELECT answer FROM {}.proposal WHERE id = %s", number)
        return found[0][0] if found else None

    # Objects

    def claim(self, count: int) -> list[int]:
        found = self._run(
            "INSERT INTO {}.object (id) SELECT %s + n FROM generate_series(0, %s - 1) AS n"
            " ON CONFLICT DO NOTHING RETURNING id",
            self._first_id(count),
            count,
        )
        return [object_id for (object_id,) in found]

    def doomed(self, idle_ms: int, limit: int = 1000) -> list[int]:
        self._run("SELECT {}.fp_bound_claims()")
        return [object_id for (object_id,) in self._run("SELECT {}.fp_doomed(%s, %s)", idle_ms, limit)]

    def forget(self, objects: Collection[int]) -> None:
        self._run("SELECT {}.fp_forget(%s)", array(objects))

    def known(self, objects: Collection[int]) -> set[int]:
        found = self._run("SELECT id FROM {}.object WHERE id = ANY (%s::bigint[])", array(objects))
        return {object_id for (object_id,) in found}
