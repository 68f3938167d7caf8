"""Faults that are planted in the stores of a cluster after a failover: the checker has to find them."""

from collections.abc import Callable

import psycopg

from tests.kit.cluster_processes import ClusterProcesses


def _execute(cluster: ClusterProcesses, *statements: str) -> None:
    with psycopg.connect(cluster.store, autocommit=True) as connection:
        for statement in statements:
            assert connection.execute(statement.encode()).rowcount, "the fault is planted"


def _lose_rows(cluster: ClusterProcesses) -> None:
    """The database loses the last row of one log, after its records were acknowledged."""
    _execute(
        cluster,
        "WITH last AS (SELECT log, max(base) AS base FROM fencepost.entry JOIN fencepost.head USING (log)"
        " WHERE name LIKE 'loose-%' GROUP BY log LIMIT 1), gone AS (DELETE FROM fencepost.entry USING last"
        " WHERE entry.log = last.log AND entry.base = last.base RETURNING entry.*)"
        " UPDATE fencepost.head SET next = gone.base FROM gone WHERE head.log = gone.log",
    )


def _double_rows(cluster: ClusterProcesses) -> None:
    """The last row of one log is there a second time, behind itself."""
    _execute(
        cluster,
        "WITH last AS (SELECT entry.* FROM fencepost.entry JOIN fencepost.head USING (log) WHERE name LIKE 'loose-%'"
        " AND base + count = next ORDER BY producer_ids LIMIT 1), more AS (INSERT INTO fencepost.entry SELECT log,"
        " base + count, count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches, '{}', heads,"
        " aborted, inline FROM last RETURNING log, count)"
        " UPDATE fencepost.head SET next = next + more.count FROM more WHERE head.log = more.log",
    )


def _overwrite_objects(cluster: ClusterProcesses) -> None:
    """Every object gets the bytes of another one, as if ids were used twice; the note of their owner stays."""
    found = [path for path in cluster.objects.rglob("*") if path.is_file() and path.parent.name != "owner"]
    paths = sorted(found, key=lambda path: path.stat().st_size)
    assert len(paths) > 1, "there are objects"
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)


PLANTED: dict[str, Callable[[ClusterProcesses], None]] = {
    "rows lost": _lose_rows,
    "rows doubled": _double_rows,
    "objects overwritten": _overwrite_objects,
}
