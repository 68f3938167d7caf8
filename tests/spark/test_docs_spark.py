"""docs/spark.md, run from its first line to its last: one Spark, one broker, one namespace."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from tests.architecture.project_files import ROOT
from tests.spark.conftest import new_producer, new_topic
from tests.spark.guide import Piece, pieces_of, placed, words_of
from tests.spark.killed import SLOW_WORKER

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
GUIDE = ROOT / "docs" / "spark.md"
DEADLINE_SECONDS = 120
SLOW_STARTS_MAX = 3


class Notebook:
    """What the pieces see, and how they are run."""

    def __init__(self, broker: str, scratch: Path) -> None:
        self._broker, self._scratch = broker, scratch
        self._topics: set[str] = set()
        self._query_type = importlib.import_module("pyspark.sql.streaming").StreamingQuery
        self.names: dict[str, Any] = {
            "__name__": "guide",
            "broker": broker,
            "produce": self.produce,
            "eventually": self.eventually,
            "output": "",
        }

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
        code = placed(piece.code, self._broker, self._scratch)
        if piece.kind == "command":
            self.names["output"] = self._command(words_of(code), piece)
            return
        exec(compile("\n" * (piece.line - 1) + code, str(GUIDE), "exec"), self.names)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        keys: Iterable[bytes | str | None] | None = None,
        partitions: int = 3,
        commit: bool = True,
        **settings: Any,
    ) -> None:
        """One transaction into a topic, which is made where it is not there; records go round its partitions."""
        if topic not in self._topics:
            new_topic(self._broker, topic, partitions)
            self._topics.add(topic)
        producer = new_producer(self._broker, **settings)
        producer.begin_transaction()
        found = list(values)
        for number, (value, key) in enumerate(zip(found, keys or [None] * len(found), strict=True)):
            producer.produce(topic, value, key, partition=number % partitions)
            producer.poll(0)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    def eventually(self, condition: Callable[[], Any], what: str = "what the guide says") -> Any:
        """Wait until it is true; a real Spark takes its time. A query that failed will not make it so."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not (found := condition()):
            for query in [value for value in self.names.values() if isinstance(value, self._query_type)]:
                if (failure := query.exception()) is not None:
                    raise AssertionError(f"{what} did not happen: {failure}")
            if time.monotonic() > until:
                raise AssertionError(f"{what} did not happen within {DEADLINE_SECONDS} s")
            time.sleep(0.1)
        return found

    def _command(self, words: list[str], piece: Piece) -> str:
        result = CliRunner(env={"FENCEPOST_BOOTSTRAP": self._broker}).invoke(cli, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, f"{GUIDE}:{piece.line}: exit code {result.exit_code}: {result.output}"
        return result.output


def test_the_guide_does_what_it_says(
    spark: Any, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every python block, every `fencepost spark` command, and the checks that stand hidden between them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    notebook = Notebook(bootstrap, tmp_path)
    pieces = list(pieces_of(GUIDE))
    kinds = [piece.kind for piece in pieces]
    assert min(kinds.count("python"), kinds.count("hidden"), kinds.count("command")) >= 2
    try:
        notebook.run_all(pieces)
    finally:
        for query in spark.streams.active:
            query.stop()
