"""The jars of Delta Lake and of Iceberg for a version of Spark, fetched once by Maven."""

import shutil
import subprocess
from pathlib import Path

from bench.spark.anchor import FETCH_TIMEOUT_SECONDS, Unavailable

ARTIFACTS = {
    "Delta": ("io.delta", "delta-spark_{}_2.13", "4.4.0"),  # for Spark 4.0 to 4.2
    "Iceberg": ("org.apache.iceberg", "iceberg-spark-runtime-{}_2.13", "1.12.0"),  # for Spark 4.1, the newest
}
_NEEDED = ("delta-", "iceberg-spark-runtime-", "unitycatalog-")
"""Spark itself has what else these name."""


def table_jars(form: str, spark: str, cache: Path) -> str:
    """Paths of a format's jars with commas between, as spark.jars takes them. Raises Unavailable."""
    place = cache / f"{form.lower()}-{spark}"
    jars = place / "jars"
    if not any(jars.glob("*.jar")):
        _fetch(form, ".".join(spark.split(".")[:2]), place, jars)
    return ",".join(str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(_NEEDED))


def _fetch(form: str, spark: str, place: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"Maven (mvn) fetches the jars of {form}")
    place.mkdir(parents=True, exist_ok=True)
    group, name, version = ARTIFACTS[form]
    (place / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>'
        f"<artifactId>tables</artifactId><version>1</version><dependencies><dependency><groupId>{group}</groupId>"
        f"<artifactId>{name.format(spark)}</artifactId><version>{version}</version></dependency></dependencies></project>",
        encoding="utf-8",
    )
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    run = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
    if run.returncode:
        raise Unavailable(f"no jars of {form} for Spark {spark}: {(run.stdout + run.stderr)[-500:]}")
