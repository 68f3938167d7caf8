"""What the documents say that the broker does not have, and what in the code would prove them wrong."""

from typing import NamedTuple


class Claim(NamedTuple):
    """A text of a page. It is wrong as soon as one of the APIs (by number) is served, or one of the settings exists."""

    page: str
    text: str
    apis: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()


CLAIMS = (
    Claim("docs/rules.md", "no tiered storage", settings=("remote.log.storage.system.enable",)),
    Claim("docs/rules.md", "no FetchSnapshot", apis=(52, 59)),
    Claim("docs/security.md", "delegation tokens", apis=(38, 39, 40, 41)),
    Claim("docs/security.md", "GSSAPI (Kerberos)", settings=("sasl.kerberos.service.name",)),
)

REFUTED = {
    "no share groups": 78,
    "does not support access rules": 30,
    "has no access rules": 30,
    "runs on one node": 58,
    "there is one node": 58,
    "One node: made": 58,
    "no FetchSnapshot: one node": 58,
}
"""Claims that were true once, and the API that refutes each: CreateAcls, and Envelope between brokers."""
