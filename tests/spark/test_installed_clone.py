"""The data source in an environment that has a clone installed, used from a folder without anything of the clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT
from tests.spark.conftest import new_topic, transactions_of
from tests.spark.guide import pieces_of, placed
from tests.spark.quick_starts import environment_of_a_newcomer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
SESSION = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"


def test_spark_finds_the_data_source_from_any_folder(installed_spark: None, bootstrap: str, tmp_path: Path) -> None:
    """As the guide reads a batch, with the environment activated and no word about Python's path."""
    for name in ("orders-eu", "orders-us"):
        transactions_of(bootstrap, new_topic(bootstrap, name))([(0, b"1"), (1, b"2"), (2, b"3")])
    (batch,) = [piece.code for piece in pieces_of(ROOT / "docs" / "spark.md") if "subscribePattern" in piece.code]
    program = SESSION + placed(batch, bootstrap, tmp_path) + "print(orders.count(), 'orders')\n"
    environment = environment_of_a_newcomer()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    run = subprocess.run(
        ["python", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "6 orders\n" in run.stdout
