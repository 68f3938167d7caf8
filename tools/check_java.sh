#!/bin/sh
# Says in one clear message whether the parts with Spark can run; never fails, because the rest works without Java.
set -u
java=java
if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
    java=$JAVA_HOME/bin/java
fi
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
if [ -z "$version" ]; then
    found="none was found on the PATH or under JAVA_HOME"
elif [ "$version" -lt 17 ]; then
    found="only Java $version was found"
else
    exit 0
fi
{
    echo "Note: Spark needs Java 17 or newer, and $found."
    echo "      What needs Spark is left out; everything else runs. To have it all:"
    echo "        Debian, Ubuntu:  apt-get install openjdk-17-jre-headless"
    echo "        macOS:           brew install openjdk@17"
} >&2
exit 0
