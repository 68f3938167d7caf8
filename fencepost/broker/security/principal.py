"""Who sends a request, in Kafka's words: a principal has a type and a name, `User:alice`."""

from typing import NamedTuple


class Principal(NamedTuple):
    """A principal. `kind` is Kafka's principal type; the broker itself makes only `User`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""A client that has not logged in: on a PLAINTEXT listener, or with TLS but without a certificate."""
