"""Python processes that Spark starts import Spark from its folder; all other processes notice nothing."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fencepost.spark_connector.worker.unzipped_spark import replaced
from tests.architecture.project_files import ROOT

pyspark = pytest.importorskip("pyspark")

HOME = Path(pyspark.__file__).parent
LIBRARY = HOME / "python" / "lib"
SPARK_ZIP = LIBRARY / "pyspark.zip"
(PY4J_ZIP,) = LIBRARY.glob("py4j-*-src.zip")
(CORE_JAR,) = (HOME / "jars").glob("spark-core_*.jar")
ARCHIVES = [str(SPARK_ZIP), str(PY4J_ZIP), str(CORE_JAR)]
WORKER = {"PYTHON_WORKER_FACTORY_SECRET": "secret"}

LOOK = """
import site, sys
site.addsitedir(sys.argv[1])
before = set(sys.modules)
import pyspark.daemon, py4j
print(pyspark.__path__[0], py4j.__path__[0], sum(entry.endswith((".zip", ".jar")) for entry in sys.path), sep="\\n")
print("fencepost" in before)
"""


def looked(place: Path, environment: dict[str, str]) -> list[str]:
    """Where a process with Spark's path finds pyspark and py4j, how many archives stay, and whether we are there."""
    shutil.copy(ROOT / "_fencepost_spark.pth", place)
    environment = {**environment, "PYTHONPATH": os.pathsep.join([*ARCHIVES, str(ROOT)])}
    run = subprocess.run(
        [sys.executable, "-c", LOOK, str(place)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert not run.stderr, run.stderr
    return run.stdout.splitlines()


def test_a_worker_imports_spark_from_its_folder(tmp_path: Path) -> None:
    own_zip = 1  # Python's own, such as python311.zip
    found = looked(tmp_path, WORKER)
    assert found == [str(HOME), str(HOME.parent / "py4j"), str(own_zip), "True"]


@pytest.mark.parametrize("environment", [{}, {**WORKER, "FENCEPOST_SPARK_ZIP": "1"}], ids=["other", "switched off"])
def test_nothing_changes_elsewhere(tmp_path: Path, environment: dict[str, str]) -> None:
    archives_and_own = len(ARCHIVES) + 1
    found = looked(tmp_path, environment)
    assert found[:3] == [str(SPARK_ZIP / "pyspark"), str(PY4J_ZIP / "py4j"), str(archives_and_own)]
    assert found[3] == str(bool(environment))


def test_the_folder_has_the_modules_of_the_zip() -> None:
    """Else a worker would run other code than Spark's. Only Spark's tests and benchmarks are not installed."""
    with zipfile.ZipFile(SPARK_ZIP) as archive:
        modules = [one for one in archive.namelist() if one.endswith(".py")]
        names = [one for one in modules if "/tests/" not in one and "/benchmark/" not in one]
        other = [one for one in names if (HOME.parent / one).read_bytes() != archive.read(one)]
    assert len(names) > 300
    assert not other
    with zipfile.ZipFile(CORE_JAR) as archive:
        assert not [one for one in archive.namelist() if one.endswith((".py", ".pyc"))]


def test_the_folder_of_sparks_own_archive_counts(tmp_path: Path) -> None:
    """A Spark that was unpacked from its archive has the package in SPARK_HOME/python, and py4j only as a zip."""
    zipped, py4j = tmp_path / "python" / "lib" / "pyspark.zip", tmp_path / "python" / "lib" / "py4j-0.1-src.zip"
    path = [str(zipped), str(py4j), "/home/of/others"]
    zipped.parent.mkdir(parents=True)
    zipped.touch()
    assert replaced(path) == ({}, path)
    daemon = tmp_path / "python" / "pyspark" / "daemon.py"
    daemon.parent.mkdir()
    daemon.touch()
    assert replaced(path) == ({"pyspark": str(tmp_path / "python")}, path[1:])


def test_a_py4j_of_another_version_does_not_count(tmp_path: Path) -> None:
    other = str(tmp_path / "py4j-0.0.1-src.zip")
    folders, kept = replaced([str(SPARK_ZIP), other, str(HOME.parent)])
    assert folders == {"pyspark": str(HOME.parent)}
    assert kept == [other, str(HOME.parent)]


def test_without_spark_the_path_stays(tmp_path: Path) -> None:
    path = [str(tmp_path / "python" / "lib" / "pyspark.zip"), str(PY4J_ZIP), str(CORE_JAR)]
    assert replaced(path) == ({}, path)
