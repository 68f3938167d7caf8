"""docs/spark.md, run from its first line to its last: one Spark, one broker, one registry, one namespace."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.schema_registry import SchemaRegistry
from tests.spark.guide import Piece, pieces_of, placed, words_of
from tests.spark.killed import SLOW_WORKER

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
GUIDE = ROOT / "docs" / "spark.md"
SLOW_STARTS_MAX = 3
SHUFFLE = "spark.sql.shuffle.partitions"


class Notebook:
    """What the pieces see, and how they are run."""

    def __init__(self, broker: str, scratch: Path, registry: str) -> None:
        self._broker, self._scratch, self._registry = broker, scratch, registry
        self.names: dict[str, Any] = {"__name__": "guide", "broker": broker, "output": ""}

    def run_all(self, pieces: list[Piece]) -> None:
        """In order. Where Spark did not wait for a Python worker, which it gives ten seconds on however busy a machine,
        a command or block is run again, and for a check the block before it, too.
        """
        number = shown = slow = 0
        while number < len(pieces):
            if pieces[number].kind != "hidden":
                shown = number
            try:
                self.run(pieces[number])
            except (Exception, AssertionError) as error:
                slow += 1
                if slow > SLOW_STARTS_MAX or not any(text in str(error) for text in SLOW_WORKER):
                    raise
                number = shown
                continue
            number += 1

    def run(self, piece: Piece) -> None:
        """Errors name the line of the guide."""
        code = placed(piece.code, self._broker, self._scratch, self._registry)
        if piece.kind == "command":
            self.names["output"] = self._command(words_of(code), piece)
            return
        exec(compile("\n" * (piece.line - 1) + code, str(GUIDE), "exec"), self.names)

    def _command(self, words: list[str], piece: Piece) -> str:
        result = CliRunner(env={"FENCEPOST_BOOTSTRAP": self._broker}).invoke(cli, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, f"{GUIDE}:{piece.line}: exit code {result.exit_code}: {result.output}"
        return result.output


def test_the_guide_does_what_it_says(
    spark: Any, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every python block, every `fencepost spark` and `fencepost topic` command, and the checks hidden between them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    shuffle_partitions = spark.conf.get(SHUFFLE)
    pieces = list(pieces_of(GUIDE))
    kinds = [piece.kind for piece in pieces]
    assert min(kinds.count("python"), kinds.count("hidden"), kinds.count("command")) >= 2
    try:
        with SchemaRegistry() as registry:
            Notebook(bootstrap, tmp_path, registry.url).run_all(pieces)
        assert int(spark.conf.get(SHUFFLE)) <= 8, "Spark's default, 200, lets a reader wait for the first result"
    finally:
        spark.conf.set(SHUFFLE, shuffle_partitions)
        for query in spark.streams.active:
            query.stop()


def test_the_stream_of_the_readme_copies_each_record(
    spark: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On a fresh broker; it reads what is written after its start, Spark's default."""
    [block] = [piece.code for piece in pieces_of(ROOT / "README.md") if "SparkSession" in piece.code]
    values = [b"%d" % number for number in range(100)]
    with BrokerProcess(tmp_path_factory.mktemp("readme")) as broker, Client(broker.address) as kafka:
        with kafka.admin() as admin:
            admin.create_topics("flights", 2)
        names: dict[str, Any] = {}
        exec(placed(block, broker.address, tmp_path), names)
        query = names["copy"]
        try:
            query.processAllAvailable()
            with kafka.transactional_producer("writer") as producer, producer.transaction() as txn:
                txn.send_many("flights", [(None, value) for value in values])
            query.processAllAvailable()
        finally:
            query.stop()
        with kafka.consumer("copies") as consumer:
            copied = [record.value for batch in consumer.read_to_end() for record in batch]
    assert sorted(copied) == sorted(values)


def test_what_a_reader_does_not_see_writes_nothing() -> None:
    """Else an example would work in this test only: `there is no topic flights`."""
    writing = re.compile(r"\b(produce|fill|send\w*|new_topic|create\w*|write\w*|save)\(")
    hidden = [piece for piece in pieces_of(GUIDE) if piece.kind == "hidden"]
    assert [piece.line for piece in hidden if writing.search(piece.code)] == []
