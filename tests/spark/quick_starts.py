"""Quick starts of Spark's processes: what each of them prepares anew is prepared once, in the environment's folder.

A driver's JVM loads ten thousand classes. From an archive (class data sharing) that takes half of the CPU time. A
Python worker imports pyspark from a zip, where Python keeps no bytecode. Here a folder of the same name takes the zip's
place. `python -m tests.spark.quick_starts` writes the archive.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.kit.one_at_a_time import one_at_a_time

# A short-lived JVM spends half of its CPU on its optimizing compiler.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MODULES = "pyspark.sql.streaming.python_streaming_source_runner, pyspark.worker, pyspark.daemon, pyspark_fencepost"
LIMIT_SECONDS = 150


def prepare() -> None:
    """Set SPARK_HOME and the flags of every JVM that Spark starts from now on, in this process and in its children."""
    import pyspark

    home = Path(sys.prefix) / f"spark-home-{pyspark.__version__}"
    archive = home / "classes.jsa"
    with one_at_a_time(home.with_name(f"{home.name}.lock")):
        if not home.exists():
            _link(Path(pyspark.__file__).parent, home)
            subprocess.run([sys.executable, "-c", f"import {MODULES}"], check=True, timeout=LIMIT_SECONDS)
        os.environ["SPARK_HOME"] = str(home)
        if not archive.exists():
            _make(archive)
    os.environ["SPARK_SUBMIT_OPTS"] = f'{SHORT_LIVED} "-XX:SharedArchiveFile={archive}" -Xlog:disable'


def environment_of_a_newcomer() -> dict[str, str]:
    """This process's environment without anything about Python and Spark; Java only is told to spare its optimizing.

    The archive is of no use there: it is that of another SPARK_HOME.
    """
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    return {**unset, "JDK_JAVA_OPTIONS": SHORT_LIVED}


def _make(archive: Path) -> None:
    """Write the archive, or an empty one, which the JVM ignores: where it cannot be made, Spark only starts slower."""
    fresh = archive.with_suffix(f".{os.getpid()}")
    flags = f'{SHORT_LIVED} "-XX:ArchiveClassesAtExit={fresh}" -Xlog:disable'
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": flags, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.spark.quick_starts"]
    with suppress(subprocess.SubprocessError):  # a busy machine does not bring up a Python worker in time
        subprocess.run(command, env=environment, check=True, timeout=LIMIT_SECONDS, stdout=subprocess.DEVNULL)
        if fresh.exists():
            fresh.replace(archive)
    archive.touch()


def _link(installed: Path, home: Path) -> None:
    """Make the parts of a SPARK_HOME that Spark's scripts and workers look for."""
    library = home / "python" / "lib"
    (library / "pyspark.zip").mkdir(parents=True)
    (library / "pyspark.zip" / "pyspark").symlink_to(installed)
    for zipped in (installed / "python" / "lib").glob("py4j-*.zip"):
        (library / zipped.name).symlink_to(zipped)
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)


def use_spark() -> None:
    """Have a driver load what most tests need; its JVM writes the archive when it ends."""
    from pyspark.sql import SparkSession

    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    seen: list[int] = []
    copied = stream.writeStream.foreachBatch(lambda batch, _: seen.append(batch.groupBy("value").count().count()))
    query = copied.trigger(processingTime="0 seconds").start()
    while not seen and query.isActive:
        time.sleep(0.1)
    query.stop()
    assert spark.range(9).mapInArrow(lambda rows: rows, "id long").count() == 9
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    use_spark()
