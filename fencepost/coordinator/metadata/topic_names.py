"""Which names a topic may have, which belong to the broker itself, and which are too alike (Kafka's rules)."""

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})
LENGTH_MAX = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_problem(name: str) -> str | None:
    """Why `name` is INVALID_TOPIC_EXCEPTION, or None: it takes 1 to 249 ASCII letters, digits, `.`, `_` or `-`."""
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
    """Whether clients may not write to the topic themselves."""
    return name in INTERNAL_TOPICS


def collision_key(name: str) -> str:
    """Names with the same key collide: metrics write `.` and `_` alike, so Kafka does not let both exist."""
    return name.replace(".", "_")
