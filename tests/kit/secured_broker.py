"""Our broker with the listeners and users of `secured_kafka`, and with rules: the same tests run against both."""

from pathlib import Path

from fencepost import sync
from fencepost.client.admin import Acl, AclOperation, AclPermission, AclResourceType, ScramMechanism, ScramUpsertion
from tests.interop.java.secured_kafka import LISTENERS, OTHER_PASSWORD, USER, settings
from tests.kit.broker_process import BrokerProcess
from tests.kit.certificates import Authority, Signed

SHA_256_PASSWORD = "of-the-sha-256-user"
FORBIDDEN = "forbidden"
"""A topic that alice may not use."""
_EVERYTHING = (AclResourceType.TOPIC, AclResourceType.TRANSACTIONAL_ID, AclResourceType.GROUP)


class SecuredBroker(BrokerProcess):
    """Its settings come from a server.properties, as Kafka's. Clients without a login may do everything."""

    def __init__(self, work_dir: Path, authority: Authority, own: Signed) -> None:
        names = {"PLAINTEXT": "PLAINTEXT", **LISTENERS}
        properties = {
            **settings(authority, own),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "connection.failed.authentication.delay.ms": "20",
        }
        work_dir.mkdir(parents=True, exist_ok=True)
        file = work_dir / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        listen = [word for name in LISTENERS for word in ("--listen", f"{name}://127.0.0.1:0")]
        super().__init__(work_dir, arguments=["--config", str(file), *listen])

    def address_of(self, listener: str) -> str:
        """HOST:PORT of a listener."""
        host, port = self.listeners[listener]
        return f"{host}:{port}"

    def add_users_and_rules(self) -> None:
        """The SCRAM users of the secured Kafka. Alice and the holder of a certificate may use all but FORBIDDEN."""
        passwords = {
            ScramMechanism.SCRAM_SHA_256: SHA_256_PASSWORD,
            ScramMechanism.SCRAM_SHA_512: OTHER_PASSWORD,
        }
        principals = [f"User:{USER}", "User:CN=client"]
        with sync.Client(self.address) as kafka, kafka.admin() as admin:
            for mechanism, password in passwords.items():
                admin.alter_user_scram_credentials(upsert=ScramUpsertion(USER, password, mechanism))
            admin.create_topics(FORBIDDEN)
            admin.create_acls(
                [Acl(kind, "*", name, AclOperation.ALL) for kind in _EVERYTHING for name in principals]
                + [
                    Acl(AclResourceType.TOPIC, FORBIDDEN, name, AclOperation.ALL, AclPermission.DENY)
                    for name in principals
                ]
            )
