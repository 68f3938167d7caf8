"""What values of settings may be: the choices, and what else is wrong with a value of the right type.

Each check returns what is wrong, for an error text, or None.
"""

from collections.abc import Callable
from urllib.parse import urlsplit

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
READ_COMMITTED_FILTERS = ("broker", "client")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
REBALANCE_PROTOCOLS = ("classic", "consumer", "share", "streams")
ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's selector that sends a consumer to a broker of its rack (KIP-392)."""
STANDARD = ("standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_SECURED = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)


def parsed_by(parse: Callable[[str], object]) -> Callable[[str], str | None]:
    """The check that a text is one that `parse` takes; the text of its ValueError is what is wrong."""

    def check(text: str) -> str | None:
        try:
            parse(text)
        except ValueError as error:
            return str(error)
        return None

    return check


def super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`; raises ValueError for one without a type."""
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in sorted(users):
        kind, _, name = user.partition(":")
        if not kind or not name:
            raise ValueError(
                f"{user!r} is not a principal; write TYPE:NAME, and semicolons between: User:alice;User:bob"
            )
    return users


def gzip_level(level: int) -> str | None:
    """KIP-390: -1 for the codec's own default, or 1 to 9."""
    return None if level == -1 or 1 <= level <= 9 else f"{level} is not a gzip level, expected -1 or 1 to 9"


def retention(value: int) -> str | None:
    return None if value == -1 or value > 0 else f"{value} is out of range, expected -1 (no limit) or more than 0"


def one_directory(paths: tuple[str, ...]) -> str | None:
    if len(paths) == 1 and paths[0]:
        return None
    return f"{','.join(paths)!r} must name exactly one directory: this broker keeps all logs together"


def connections_by_host(entries: tuple[str, ...]) -> str | None:
    for entry in entries:
        host, _, count = entry.rpartition(":")
        if not host or not count.isdigit():
            return f"{entry!r} is not HOST:CONNECTIONS"
    return None


def authorizer(name: str) -> str | None:
    if name in ("", *STANDARD):
        return None
    return f"{name!r} is not an authorizer of this broker; use {' or '.join(STANDARD)}"


def token_validator(name: str) -> str | None:
    if name in ("", UNSECURED, *_SECURED):
        return None
    return f"{name!r} is not a handler of this broker; it has {_SECURED[0]} and {UNSECURED}"


def url_of_keys(text: str) -> str | None:
    if urlsplit(text).scheme in ("https", "file"):
        return None
    return f"{text!r} is not the URL of a key set, https://HOST/PATH or file:///PATH"


def cipher_suites(suites: tuple[str, ...]) -> str | None:
    from fencepost.broker.security.tls_context import suites_problem  # here: it imports ssl

    return suites_problem(suites)


def assignors(names: tuple[str, ...]) -> str | None:
    if names and len(set(names)) == len(names):
        return None
    return "must name at least one assignor, and none twice"


def share_assignors(names: tuple[str, ...]) -> str | None:
    return None if len(names) == 1 else f"must contain exactly one assignor, but found {len(names)}"


def rebalance_protocols(names: tuple[str, ...]) -> str | None:
    return None if "classic" in names else "must contain classic: that protocol cannot be disabled"


def migration_policy(policy: str) -> str | None:
    """Kafka takes it in any case."""
    if policy.lower() in MIGRATION_POLICIES:
        return None
    return f"{policy!r} is not allowed, expected one of {', '.join(MIGRATION_POLICIES)}"


def throttled_replicas(members: tuple[str, ...]) -> str | None:
    for member in members:
        partition, colon, broker = member.partition(":")
        if member != "*" and not (colon and partition.isdigit() and broker.isdigit()):
            return f"{member!r} is not * or PARTITION:BROKER"
    return None


def no_tiered_storage(on: bool) -> str | None:
    return "this broker has no tiered storage" if on else None
