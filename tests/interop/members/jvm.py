"""How a member with Kafka's own Java client is started: from its source, with the jars of Kafka's tools."""

import functools
import subprocess

from tests.interop.java.jars import Unavailable, class_path, java
from tests.interop.members.node import HERE

JVM_OPTIONS = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Xlog:disable", "-XX:+UseSerialGC"]


@functools.cache
def java_member() -> list[str]:
    """The command. Raises Unavailable without a JDK, whose compiler runs it, or without the jars."""
    command = java()
    modules = subprocess.run([command, "--list-modules"], capture_output=True, text=True, timeout=300, check=False)
    if "jdk.compiler" not in modules.stdout:
        raise Unavailable("a member in Java needs a JDK, not only a JRE: install openjdk-17-jdk-headless")
    return [command, *JVM_OPTIONS, "-cp", class_path(), str(HERE / "JavaMember.java")]
