"""What protects a listener's connections: Kafka's four security protocols."""

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """A security protocol, under Kafka's number in `RegisterBrokerRecord`."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """Whether a client must log in by SASL before any other request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
