"""Who sends a request, in Kafka's words: a principal has a type and a name, `User:alice`."""

from typing import NamedTuple


class Principal(NamedTuple):
    """A principal. `kind` is Kafka's principal type; clients are of the kind `User`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


CLUSTER = Principal("Broker", "cluster")
"""Another broker of the cluster. No login of a client makes a principal of this type."""
ANONYMOUS = Principal("User", "ANONYMOUS")
"""A client that has not logged in: on a PLAINTEXT listener, or with TLS but without a certificate."""
