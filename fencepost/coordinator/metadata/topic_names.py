"""Valid topic names, internal topics, and names that collide (Kafka's rules)."""

import re
from collections.abc import Mapping
from itertools import product

from fencepost.protocol.topics import GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})
LENGTH_MAX = 249
_SEPARATORS = re.compile("[._]")
_VARIED_SEPARATORS_MAX = 8
"""A name with more separators is compared with all others, instead of looking up all its variants."""
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_problem(name: str) -> str | None:
    """Why `name` is INVALID_TOPIC_EXCEPTION, or None: it must have 1 to 249 ASCII letters, digits, `.`, `_` or `-`."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    if not _LEGAL.issuperset(name):
        allowed = "ASCII alphanumerics, '.', '_' and '-'"
        return f"Topic name is invalid: '{name}' contains one or more characters other than {allowed}"
    return None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def colliding_name(name: str, names: Mapping[str, object]) -> str | None:
    """Another one of `names` that differs from `name` in `.` and `_` only: metrics cannot distinguish the two, so Kafka
    does not let both exist."""
    pieces = _SEPARATORS.split(name)
    if len(pieces) > _VARIED_SEPARATORS_MAX:
        alike = name.replace(".", "_")
        return next((other for other in names if other != name and other.replace(".", "_") == alike), None)
    for separators in product("._", repeat=len(pieces) - 1):
        other = "".join(map("".join, zip(pieces, (*separators, ""), strict=True)))
        if other != name and other in names:
            return other
    return None
