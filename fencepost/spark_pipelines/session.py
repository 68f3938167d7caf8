"""The Spark session of a pipeline, and clear errors if PySpark, Arrow or Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fencepost.spark_pipelines.errors import INSTALL_SPARK, MissingPartError

MIN_JAVA = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def need_spark() -> None:
    """Raise MissingPartError, with what to install, if PySpark, Arrow or a suitable Java is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise MissingPartError(f"{' and '.join(missing)} is not installed here. Install it with: {INSTALL_SPARK}")
    java = java_command()
    if java is None:
        raise MissingPartError(
            f"Spark needs Java {MIN_JAVA} or newer. There is no java command in JAVA_HOME or on the PATH.\n"
            "  Install it, or set JAVA_HOME.\n"
            "  Debian, Ubuntu: apt install openjdk-17-jre-headless;  macOS: brew install openjdk@17"
        )
    found = java_version(java)
    if found is not None and found < MIN_JAVA:
        raise MissingPartError(
            f"Spark needs Java {MIN_JAVA} or newer, but {java} is Java {found}: set JAVA_HOME to a newer one"
        )


def java_command() -> str | None:
    """The java command that Spark's launcher uses; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def java_version(java: str) -> int | None:
    """The major version of a java command; None if it is unknown. Java before 9 reports 1.x."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(run.stderr + run.stdout)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def spark_session(name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None) -> Any:
    """The running session, or a new one. `master` None means local[*]. Raises MissingPartError.

    Its workers use this Python, unless PYSPARK_PYTHON or `conf` sets another one. They can import this fencepost.
    """
    need_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))
    builder = SparkSession.builder.appName(f"fencepost {name}")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        **(conf or {}),
    }
    if "spark.master" not in settings:
        settings["spark.master"] = master or "local[*]"
    if settings["spark.master"].startswith("local"):
        # No other machine connects to this driver, and a host name without an address must not stop it.
        settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **settings}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


_TRACE = re.compile(r"^\s*(at |File |\.\.\. \d+ more|Traceback )")
_ERROR_LINE = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception|Fenced\w*|Loss)): (.+)$")
_PICKLING = re.compile(r"^Could not serialize object: \w+: ")
"""What Spark puts before the error of a writer that it sends to the tasks."""


def cause_of(error: BaseException) -> str | None:
    """The line of Spark's error that names the cause; None for an error that is not from Spark.

    Spark wraps the exception of a task or a data source in its own text and two stack traces. The last Python
    exception in that text is the cause.
    """
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [found for line in lines if (found := _ERROR_LINE.match(line)) and not _TRACE.match(line)]
    python_errors = [found for found in raised if not found[0].startswith(("org.apache", "java.", "py4j"))]
    if python_errors:
        return _PICKLING.sub("", python_errors[-1][2])
    return next((line for line in lines if line), type(error).__name__)
