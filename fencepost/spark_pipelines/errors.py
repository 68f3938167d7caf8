"""What can go wrong in a pipeline, with a word on what to do next."""


class PipelineError(Exception):
    """Something is not as the pipeline needs it; the text says what, and what to do."""


class MissingPart(PipelineError):
    """PySpark, Arrow or Java is not there; the text says how to get it."""
