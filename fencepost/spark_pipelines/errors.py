"""The exceptions of the pipelines."""

INSTALL_SPARK = "pip install '.[spark]' in a clone of fencepost"
"""How to install PySpark and its parts. Change this when fencepost is on a package index."""


class PipelineError(Exception):
    """A pipeline cannot run or continue. The message says why and what to do."""


class MissingPartError(PipelineError):
    """PySpark, Arrow or Java is missing. The message says how to install it."""
