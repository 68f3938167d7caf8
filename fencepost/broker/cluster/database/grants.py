"""Which rights roles have in the schema of a cluster: what a broker's role lacks, and who gets rights on new tables.

This module imports psycopg.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import psycopg

BROKER_RIGHTS = {"TABLE": ("SELECT", "INSERT", "UPDATE", "DELETE"), "SEQUENCE": ("USAGE",), "FUNCTION": ("EXECUTE",)}
"""What a broker needs of each kind of object."""
PUBLIC = 0
"""The grantee that stands for all roles."""

_OBJECTS = """
SELECT CASE relkind WHEN 'r' THEN 'TABLE' ELSE 'SEQUENCE' END AS kind, oid, relname::text AS name,
    format('%%I.%%I', %(schema)s::text, relname) AS quoted, relrowsecurity AS hidden,
    coalesce(relacl, acldefault(CASE relkind WHEN 'r' THEN 'r' ELSE 's' END::"char", relowner)) AS acl
FROM pg_class
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s) AND (
    relkind = 'r' OR relkind = 'S' AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'i'))
UNION ALL
SELECT 'FUNCTION', oid, proname::text,
    format('%%I.%%I(%%s)', %(schema)s::text, proname, pg_get_function_identity_arguments(oid)), false,
    coalesce(proacl, acldefault('f', proowner))
FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s)
"""
"""Tables, functions, and sequences that are not part of a column, whose rights count by themselves."""

_LACKING = f"""
SELECT kind, name, quoted, array_agg(p ORDER BY p) FROM ({_OBJECTS}) AS object, unnest(CASE kind
    WHEN 'TABLE' THEN %(tables)s::text[] WHEN 'SEQUENCE' THEN %(sequences)s::text[] ELSE %(functions)s::text[] END) AS p
WHERE NOT CASE kind WHEN 'TABLE' THEN has_table_privilege(oid, p) WHEN 'SEQUENCE' THEN has_sequence_privilege(oid, p)
    ELSE has_function_privilege(oid, p) END
GROUP BY kind, name, quoted ORDER BY kind DESC, quoted
"""


class Lacking(NamedTuple):
    """Rights that a role lacks on one thing."""

    rights: Sequence[str]
    thing: str
    """As in `entry`, or `schema fencepost`."""
    statement: str
    """The GRANT that gives the rights."""


class Right(NamedTuple):
    """One right that one role has on one object of the schema."""

    kind: str
    oid: int
    quoted: str
    hidden: bool
    """Whether a policy hides rows of the table."""
    grantee: int
    role: str
    """Quoted; PUBLIC for all roles."""
    right: str


def lacking(connection: "psycopg.Connection[Any]", schema: str) -> list[Lacking]:
    """What the connection's role lacks to be a broker; nothing if there is no schema. Raises psycopg.Error."""
    found = connection.execute(
        "SELECT has_schema_privilege(oid, 'USAGE'), format('%%I', nspname), format('%%I', current_user)"
        " FROM pg_namespace WHERE nspname = %s",
        [schema],
    ).fetchone()
    if found is None:
        return []
    may_use, quoted_schema, role = found
    if not may_use:
        return [Lacking(["USAGE"], f"schema {schema}", f"GRANT USAGE ON SCHEMA {quoted_schema} TO {role}")]
    tables, sequences, functions = (list(BROKER_RIGHTS[kind]) for kind in ("TABLE", "SEQUENCE", "FUNCTION"))
    parameters = {"schema": schema, "tables": tables, "sequences": sequences, "functions": functions}
    rows = connection.execute(_LACKING.encode(), parameters).fetchall()
    return [
        Lacking(rights, name, f"GRANT {', '.join(rights)} ON {kind} {quoted} TO {role}")
        for kind, name, quoted, rights in rows
    ]


def sentence(role: str, found: Collection[Lacking]) -> str:
    lacks = ", ".join(f"{right} on {one.thing}" for one in found for right in one.rights)
    return f"role {role} lacks {lacks}: run as the owner of the schema: {'; '.join(one.statement for one in found)}"


def rights(connection: "psycopg.Connection[Any]", schema: str) -> list[Right]:
    """All rights of all roles on the objects of the schema, those of owners included. Raises psycopg.Error."""
    found = connection.execute(
        f"SELECT kind, oid, quoted, hidden, grantee, CASE grantee WHEN {PUBLIC} THEN 'PUBLIC' ELSE"
        f" format('%%I', pg_get_userbyid(grantee)) END, privilege_type FROM ({_OBJECTS}) AS object, aclexplode(acl)"
        " ORDER BY quoted, grantee, privilege_type".encode(),
        {"schema": schema},
    )
    return [Right(*row) for row in found]


def extend(connection: "psycopg.Connection[Any]", before: Collection[Right], after: Collection[Right]) -> None:
    """Give each role on the new objects the rights that it had on all old ones of that kind. Raises psycopg.Error.

    A table with hidden rows is for brokers: only roles with all rights of a broker get rights on it.
    """
    old, new = {one.oid for one in before}, {(one.kind, one.quoted, one.hidden) for one in after}
    new -= {(one.kind, one.quoted, one.hidden) for one in after if one.oid in old}
    for kind, quoted, hidden in sorted(new):
        for role, held in _rights_on_all(before, kind).items():
            if not hidden or held.issuperset(BROKER_RIGHTS[kind]):
                statement = f"GRANT {', '.join(sorted(held))} ON {kind} {quoted} TO {role}"
                connection.execute(statement.encode(), prepare=False)


def _rights_on_all(before: Collection[Right], kind: str) -> dict[str, set[str]]:
    """The rights that each role has on every object of a kind, without tables whose rows are hidden."""
    seen = [one for one in before if one.kind == kind and not one.hidden]
    objects = {one.oid for one in seen}
    held: dict[tuple[str, str], set[int]] = defaultdict(set)
    for one in seen:
        held[one.role, one.right].add(one.oid)
    found: dict[str, set[str]] = defaultdict(set)
    for (role, right), covered in held.items():
        if covered == objects:
            found[role].add(right)
    return found


def act_as_owner(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Until the transaction ends, work as the owner of the tables, so that the new ones have the same owner.

    Raises psycopg.Error.
    """
    connection.execute(
        "SELECT set_config('role', pg_get_userbyid(relowner), true) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relname = 'cluster'",
        [schema],
    )
