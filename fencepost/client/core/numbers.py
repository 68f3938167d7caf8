"""Numbers that a program names: checked where they enter, so that no request fails to encode later."""

from operator import index
from typing import Any

from fencepost.protocol.varints import LONG_MAX


def whole_number(what: str, number: Any, low: int = 0, high: int = LONG_MAX) -> int:
    """The number as an int. Raises TypeError if it is not whole, ValueError if it is out of range; both name `what`."""
    try:
        whole = index(number)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(number).__name__}") from None
    if not low <= whole <= high:
        raise ValueError(f"{what} must be from {low} to {high}, not {whole}")
    return whole
