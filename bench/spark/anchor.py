"""The jars of Spark's own Kafka connector, fetched once by what is there: Maven, or the Ivy that comes with PySpark."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>anchor</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""
# What Spark has itself; the connector brings these, and what they need of their own.
_NEEDED = ("spark-sql-kafka-0-10_2.13-", "spark-token-provider-kafka-0-10_2.13-", "kafka-clients-", "commons-pool2-")
FETCH_TIMEOUT_SECONDS = 600


class Unavailable(Exception):
    """The jars cannot be had; the message says why."""


def jars_of(version: str, cache: Path) -> str:
    """Paths of the jars with commas between, as spark.jars takes them. Raises Unavailable."""
    place = cache / f"anchor-{version}"
    found = _found(place)
    if not found:
        place.mkdir(parents=True, exist_ok=True)
        command = _command(version, place)
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False, cwd=place
            )
            said = (run.stdout + run.stderr)[-500:]
        except subprocess.TimeoutExpired:
            said = f"nothing for {FETCH_TIMEOUT_SECONDS} s"
        found = _found(place)
        if not found:
            raise Unavailable(f"no jars of Spark's Kafka connector {version} (no network, or no such version): {said}")
    return ",".join(map(str, found))


def _found(place: Path) -> list[Path]:
    jars = sorted(jar for jar in place.glob("jars/*.jar") if jar.name.startswith(_NEEDED))
    return jars if {True} == {any(jar.name.startswith(name) for jar in jars) for name in _NEEDED} else []


def _command(version: str, place: Path) -> list[str]:
    (place / "pom.xml").write_text(_POM.format(version=version), encoding="utf-8")
    maven = shutil.which("mvn")
    if maven is not None:
        return [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={place / 'jars'}"]
    import pyspark

    ivy = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not ivy:
        raise Unavailable(f"nothing here fetches jars: install Maven (mvn), or give --anchor-jars; {sys.executable}")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    pattern = f"{place}/jars/[artifact]-[revision].[ext]"
    return [java, "-jar", str(ivy[0]), "-ivy", str(place / "pom.xml"), "-retrieve", pattern, "-confs", "runtime"]
