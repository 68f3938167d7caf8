"""The exit code of an interrupted command, and the error in the groups that nurseries make."""

from typing import TypeVar

EXIT_INTERRUPTED = 130
ErrorT = TypeVar("ErrorT", bound=BaseException)


def first_of(group: "BaseExceptionGroup[ErrorT]") -> ErrorT:
    """The first error of a group that is no group itself."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error
