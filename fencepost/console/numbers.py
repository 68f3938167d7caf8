"""Numbers in URLs and forms."""

DIGITS_MAX = 18
"""All offsets below 10**18 are accepted: they fit into the 8 bytes of an offset."""


def whole_number(text: str) -> int | None:
    """The number that the text is, in decimal digits; None if it is none, or too large."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else None
