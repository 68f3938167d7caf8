"""A Spark session for a pipeline, and a clear word where PySpark, Arrow or Java is missing."""

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

LEAST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def need_spark() -> None:
    """Raises MissingPartError, with what to install, unless PySpark, Arrow and a Java that they run on are there."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise MissingPartError(f"{' and '.join(missing)} is not installed here. Install it with: {INSTALL_SPARK}")
    java = java_command()
    if java is None:
        raise MissingPartError(
            f"Spark needs Java {LEAST_JAVA} or newer, and there is none: neither JAVA_HOME nor java on the PATH.\n"
            "  Debian, Ubuntu: apt install openjdk-17-jre-headless;  macOS: brew install openjdk@17"
        )
    found = java_version(java)
    if found is not None and found < LEAST_JAVA:
        raise MissingPartError(
            f"Spark needs Java {LEAST_JAVA} or newer, but {java} is Java {found}: set JAVA_HOME to a newer one"
        )


def java_command() -> str | None:
    """The java that Spark's launcher will take; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def java_version(java: str) -> int | None:
    """Its major version; None where it does not say. Java before 9 called itself 1.x."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(run.stderr + run.stdout)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def spark_session(name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None) -> Any:
    """The running session, or a new one; `master` None is Spark's own default, local[*]. Raises MissingPartError.

    Its Python workers are this Python, unless PYSPARK_PYTHON or `conf` says otherwise, and can import this fencepost.
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
        # Nobody else is to talk to this driver, and a host name that does not resolve must not stop it.
        settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **settings}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


_TRACE = re.compile(r"^\s*(at |File |\.\.\. \d+ more|Traceback )")
_ERROR_LINE = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception|Fenced\w*|Loss)): (.+)$")


def cause_of(error: BaseException) -> str | None:
    """The line of an error from Spark that says what happened; None for an error that did not come from Spark.

    Spark wraps what a task or a data source raised into its own words and two stack traces; the last Python line in it
    is what was raised.
    """
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [found for line in lines if (found := _ERROR_LINE.match(line)) and not _TRACE.match(line)]
    ours = [found for found in raised if not found[0].startswith(("org.apache", "java.", "py4j"))]
    if ours:
        return f"{ours[-1][2]}"
    return next((line for line in lines if line), type(error).__name__)
