"""What the values of options look like, to the source and to the sink. Each raises ValueError with what it must be."""


class OptionError(ValueError):
    """An option that does not exist, does not fit the others, or has a value it can not take."""


def positive(text: str) -> int:
    """1 and above."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("must be a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    """0 and above."""
    if not text.isascii() or not text.isdigit():
        raise ValueError("must be a whole number, 0 or above")
    return int(text)


def boolean(text: str) -> bool:
    """true or false, in any case, as Spark takes them."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"
