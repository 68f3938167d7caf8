"""A real Kafka's settings with a listener of each kind of TLS and SASL, and who may use it."""

from tests.kit.certificates import Authority, Signed

USER, PASSWORD = "alice", 'a,lice="s=ecret" ñ'


OTHER_PASSWORD = "of-the-sha-512-user"


SESSION_MS = 8000


LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_SSL",
    "RENEWED": "SASL_SSL",
    "BARE": "SASL_PLAINTEXT",
}


PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


OAUTH_MODULE = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker";'
)


GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.guarded.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
    "listener.name.guarded.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
}
"""With an authorizer and a listener at which one logs in; whoever is anonymous may do everything."""


UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


def escaped(pem: str) -> str:
    """PEM as a property file takes it on one line."""
    return pem.strip().replace("\n", "\\n")


def settings(authority: Authority, broker: Signed) -> dict[str, str]:
    plain = f'{PLAIN_MODULE} username="admin" password="admin" user_{USER}="{PASSWORD}";'.replace(
        '"s=ecret"', '\\\\"s=ecret\\\\"'
    ).replace("ñ", "\\u00f1")
    result = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": escaped(broker.key.read_text()),
        "ssl.keystore.certificate.chain": escaped(broker.certificate.read_text()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": escaped(authority.ca.read_text()),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.bare.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.renewed.connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("sasl", "renewed", "bare"):
        name = f"listener.name.{listener}"
        result[f"{name}.plain.sasl.jaas.config"] = plain
        result[f"{name}.scram-sha-256.sasl.jaas.config"] = SCRAM_MODULE
        result[f"{name}.scram-sha-512.sasl.jaas.config"] = SCRAM_MODULE
        result[f"{name}.oauthbearer.sasl.jaas.config"] = OAUTH_MODULE
        result[f"{name}.oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
        result[f"{name}.oauthbearer.connections.max.reauth.ms"] = str(SESSION_MS if listener == "renewed" else 0)
        for mechanism in ("plain", "scram-sha-256", "scram-sha-512"):
            result[f"{name}.{mechanism}.connections.max.reauth.ms"] = str(SESSION_MS if listener == "renewed" else 0)
    return result
