"""The tables of options in docs/spark.md, compared with the options that the source knows."""

import re
from fnmatch import fnmatch

import pytest

from fencepost.spark_connector.source import option_names as names
from fencepost.spark_connector.source.options import Mode, parse_options
from tests.architecture.project_files import ROOT
from tests.spark.java_patterns import REFUSED as REFUSED_PATTERNS

Table = list[list[str]]


def tables(heading: str) -> list[Table]:
    """The tables below a heading: the cells of each row, without the head."""
    section = (ROOT / "docs" / "spark.md").read_text().split(f"\n{heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    blocks = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [[row.strip("| ").split(" | ") for row in block.splitlines()[2:]] for block in blocks]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


OF_SPARK, OF_KAFKA, OWN, WITHOUT_EFFECT, REFUSED = tables("## Options")


def names_in(table: Table) -> list[str]:
    return [name for row in table for name in quoted(row[0])]


def test_the_tables_name_every_option_once_and_no_other() -> None:
    known = [*names.SOURCE_NAMES, *names.KAFKA_NAMES]
    written = names_in(OF_SPARK) + names_in(OF_KAFKA) + names_in(OWN)
    assert len(written) == len(set(written))
    assert [one for one in known if not any(fnmatch(one, name) for name in written)] == []
    assert [name for name in written if not any(fnmatch(one, name) for one in known)] == []


def test_the_tables_name_what_changes_nothing_and_what_is_refused() -> None:
    without = {*names.WITHOUT_EFFECT, *names.KAFKA_WITHOUT_EFFECT} - set(names.security.WITHOUT_EFFECT)
    assert sorted(names_in(WITHOUT_EFFECT)) == sorted(without)
    assert sorted(names_in(REFUSED)) == sorted(names.REFUSED)


def test_the_options_for_streams_only_say_so() -> None:
    marked = [name for row in OF_SPARK + OWN for name in quoted(row[0]) if "streams only" in row[-1]]
    assert sorted(marked) == sorted(names.ONLY_STREAM)
    for_batches = [name for row in OF_SPARK for name in quoted(row[0]) if "batches only" in row[-1]]
    assert sorted(for_batches) == sorted(names.ENDS)


DEFAULTS = [
    (row[0].strip("`"), *quoted(row[1])) for row in OF_SPARK + OF_KAFKA + OWN if re.fullmatch("`[^`]+`", row[1])
]


@pytest.mark.parametrize(("name", "value"), DEFAULTS)
def test_a_default_in_the_tables_is_the_default(name: str, value: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    mode = Mode.BATCH if name in names.ENDS else Mode.STREAM
    assert parse_options({**given, name: value}, mode) == parse_options(given, mode)


def test_there_are_defaults_to_compare() -> None:
    assert len(DEFAULTS) >= 10


def test_the_patterns_that_the_guide_calls_refused_are() -> None:
    written = [pattern for row in tables("### subscribePattern")[0] for pattern in quoted(row[0])]
    assert len(written) > 10
    assert [pattern for pattern in written if pattern not in REFUSED_PATTERNS and len(pattern) > 1] == []
