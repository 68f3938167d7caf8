"""JSON as it stands in the standard, with the digits that it was written with."""

import decimal
import json
from typing import Any

from fencepost.spark_connector.schemas.errors import PoisonRecordError

_EXACT_DIGITS = 15
"""This many digits are the same after a conversion to a double and back."""


def parsed_json(text: str | bytes) -> Any:
    """The value; a number that no double is equal to is a Decimal. Raises PoisonRecordError or ValueError."""
    return json.loads(text, parse_float=_exact, parse_constant=_refuse_constant)


def json_text(value: Any, separators: tuple[str, str] = (", ", ": ")) -> str:
    """The text of a value, with all its digits. Raises ValueError for infinite numbers."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)
    except TypeError:  # it has Decimals
        between, behind_key = separators
    if isinstance(value, dict):
        items = (
            f"{json.dumps(key, ensure_ascii=False)}{behind_key}{json_text(one, separators)}"
            for key, one in value.items()
        )
        return f"{{{between.join(items)}}}"
    if isinstance(value, list):
        return f"[{between.join(json_text(one, separators) for one in value)}]"
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


def _exact(text: str) -> float | decimal.Decimal:
    found = float(text)
    if len(text) <= _EXACT_DIGITS and "e" not in text and "E" not in text:
        return found
    exact = decimal.Decimal(text)
    return found if decimal.Decimal(repr(found)) == exact else exact


def _refuse_constant(name: str) -> Any:
    raise PoisonRecordError(f"{name} is not JSON")
