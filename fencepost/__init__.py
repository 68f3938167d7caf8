"""fencepost: exactly-once messaging for Python teams, without a JVM."""

__version__ = "0.1.0.dev0"
