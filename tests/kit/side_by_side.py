"""Several test processes at once (pytest-xdist): how many, which tests share one, and which of them begin."""

import os
from fnmatch import fnmatch

SHARED = (
    ("spark/test_own_spark*", "Sparks of their own"),
    ("spark/test_sink_kills*", "Sparks of their own"),
    ("spark/test_first_stream*", "Sparks of their own"),
    ("spark/test_installed_clone*", "Sparks of their own"),
    ("spark/test_example_etl*", "Sparks of their own"),
    ("spark/*", "Spark"),
    ("interop/test_own_client_[cgopt]*", "Kafka"),
    ("interop/java/test_own_client_[aqs]*", "Kafka"),
    ("interop/java/test_real_kafka*", "Kafka"),
    ("interop/java/*", "Kafka's tools"),
    ("architecture/*", "the sources"),
    ("unit/cluster/test_engine*", "the unit tests' PostgreSQL"),
    ("unit/cluster/test_history.py", "the unit tests' PostgreSQL"),
    ("unit/cluster/test_merging.py", "the unit tests' PostgreSQL"),
    ("unit/cluster/test_row_*", "the unit tests' PostgreSQL"),
    ("unit/cluster/test_tails_*", "the unit tests' PostgreSQL"),
)
"""What is made once for all tests of a group: Spark's JVM, a real Kafka, a JVM with Kafka's tools, a server, a parse.

Tests that start a Spark of their own are another group, one after the other: each takes a core and a gigabyte.
"""

ALONE = "simulation/*"
"""Worlds share nothing, and some take minutes: each test of these files is a group of its own."""
FIRST = (
    "Kafka",
    "Spark",
    "simulation/test_whole_world.py",
    "simulation/test_group_world.py",
    "Sparks of their own",
    "property/test_messages.py",
    "the sources",
    "the unit tests' PostgreSQL",
)
"""What takes longest, by file or group; what waits most beside what reckons most."""


def group_of(test: str) -> str:
    """The name of the group that a test (pytest's node id) belongs to: its file's, where that shares nothing dear."""
    name = test.partition("::")[0].removeprefix("tests/")
    if fnmatch(name, ALONE):
        return test.removeprefix("tests/")
    return next((group for pattern, group in SHARED if fnmatch(name, pattern)), name)


def workers() -> int:
    """Twice as many as there are cores: much of the run is waiting, for Spark, timeouts, and clusters that agree."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, 2 * cores)


def turn_of(group: str) -> int:
    """Where a group stands in the line: what takes minutes begins, so that none of it is left to the end."""
    name = group.partition("::")[0]
    return FIRST.index(name) if name in FIRST else len(FIRST)
