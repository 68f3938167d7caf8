"""What can go wrong in a pipeline, with a word on what to do next."""

INSTALL_SPARK = "pip install '.[spark]' in a clone of fencepost"
"""How to get PySpark and what goes with it. Nothing is published yet; when it is, this is the place to say so."""


class PipelineError(Exception):
    """Something is not as the pipeline needs it; the text says what, and what to do."""


class MissingPartError(PipelineError):
    """PySpark, Arrow or Java is not there; the text says how to get it."""
