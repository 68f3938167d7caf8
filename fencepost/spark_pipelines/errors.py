"""The exceptions of the pipelines."""

from fencepost.extras import install

INSTALL_SPARK = install("spark")
"""How to install PySpark and its parts."""


class PipelineError(Exception):
    """A pipeline cannot run or continue. The message says why and what to do."""


class MissingPartError(PipelineError):
    """PySpark, Arrow or Java is missing. The message says how to install it."""
