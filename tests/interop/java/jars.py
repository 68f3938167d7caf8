"""Where Java and jars come from: Maven where it is installed, else the Ivy that comes with PySpark."""

import hashlib
import os
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from tests.kit.one_at_a_time import one_at_a_time

HERE = Path(__file__).resolve().parent
TOOLS_POM = HERE / "pom.xml"
CACHE = HERE / ".jars"
"""Not under version control: the class path found for each pom as it is, and what Ivy has fetched."""
RESOLVE_TIMEOUT_SECONDS = 180
"""Two of them, one after the other, are less than pytest gives a test."""
FAILED_SECONDS = 1800
"""How long nobody tries again to fetch what could not be had: each try may take all the time it is given."""


class Unavailable(Exception):
    """A Java program cannot be run here; the message says what to install."""


def java() -> str:
    """The java command. Raises Unavailable."""
    home = os.environ.get("JAVA_HOME")
    under_home = None if home is None else shutil.which("java", path=str(Path(home) / "bin"))
    found = under_home or shutil.which("java")
    if found is None:
        raise Unavailable("this needs Java 17 or newer: install openjdk-17-jre-headless, or set JAVA_HOME")
    return found


def class_path(pom: Path = TOOLS_POM) -> str:
    """The jars of a pom as Java's -cp wants them, resolved once per checkout. Raises Unavailable."""
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    known, failed = CACHE / f"classpath-{key}", CACHE / f"failed-{key}"
    with one_at_a_time(CACHE / "lock"):
        found = known.read_text() if known.exists() else ""
        if found and all(Path(jar).exists() for jar in found.split(os.pathsep)):
            return found
        if failed.exists() and time.time() - failed.stat().st_mtime < FAILED_SECONDS:
            raise Unavailable(failed.read_text())
        return _resolve(pom, known, failed)


def _resolve(pom: Path, known: Path, failed: Path) -> str:
    fresh = CACHE / f"classpath-{os.getpid()}"
    command = _command(pom, fresh)
    try:
        run = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_SECONDS, check=False
        )
        said = (run.stdout + run.stderr)[-1000:]
    except subprocess.TimeoutExpired:
        said = f"nothing for {RESOLVE_TIMEOUT_SECONDS} s"
    if not fresh.exists():
        why = f"the jars of {pom.name} could not be fetched (no network?): {command[0]} said: {said}"
        failed.write_text(f"{why} (to try again at once, remove {failed})")
        raise Unavailable(why)
    fresh.replace(known)
    return known.read_text()


def _command(pom: Path, output: Path) -> list[str]:
    maven = shutil.which("mvn")
    if maven is not None:
        return [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    spark = find_spec("pyspark")
    jars = [] if spark is None or spark.origin is None else (Path(spark.origin).parent / "jars").glob("ivy-*.jar")
    for ivy in jars:
        options = ["-ivy", pom, "-cache", CACHE, "-cachepath", output, "-confs", "runtime", "-types", "jar", "bundle"]
        return [java(), "-jar", str(ivy), *map(str, options)]
    raise Unavailable("nothing here can fetch jars: install Maven (mvn), or PySpark, which brings Ivy")
