"""The SASL mechanisms of each listener: from the settings, the users in the metadata, and the keys of token issuers."""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from fencepost.broker.config.checks import UNSECURED
from fencepost.broker.config.sasl_settings import jaas_of
from fencepost.broker.security.audit import audit
from fencepost.broker.security.sasl.exchange import OAUTHBEARER, PLAIN, Exchange
from fencepost.broker.security.sasl.session import Mechanism, SaslSession
from fencepost.coordinator.metadata.image import ScramUser
from fencepost.coordinator.metadata.user_controller import CredentialUpsertion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.scram import ITERATIONS, MECHANISM_NUMBERS, SALT_BYTES, salted_password

if TYPE_CHECKING:
    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.security.sasl.oauthbearer import Validator
    from fencepost.broker.security.sasl.scram import Credential, Form
    from fencepost.broker.token_keys import TokenKeys
    from fencepost.coordinator.metadata.service import MetadataService
    from fencepost.coordinator.ports import Clock

NONCE_BYTES = 24
NewSession = Callable[[], SaslSession]

logger = logging.getLogger(__name__)


class Logins:
    """Makes the SASL sessions of connections."""

    def __init__(
        self, config: "BrokerConfig", metadata: "MetadataService", clock: "Clock", of_brokers: Mapping[str, Mechanism]
    ) -> None:
        """`of_brokers` are the mechanisms with which other brokers of the cluster log in."""
        self._of_brokers = of_brokers
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._keys: dict[str, TokenKeys] = {}
        self._secret = secrets.token_bytes(32)
        """Makes the salts of users who do not exist: see ScramCredentials."""
        self.by_listener: dict[str, NewSession] = {
            listener.name: self._sessions(listener.name)
            for listener in config.client_listeners
            if listener.protocol.sasl
        }
        """What makes the sessions of each listener with SASL."""

    async def start(self, nursery: trio.Nursery, *, has_users: bool) -> None:
        """Create the first user if it is time to, and begin to read the keys of token issuers.

        Without `has_users` another broker does so: this one may not have read yet that there are users.
        """
        if has_users:
            await _create_first_user(self._config, self._metadata)
            self._warn_of_missing_users()
        for keys in self._keys.values():
            nursery.start_soon(keys.run)

    def _warn_of_missing_users(self) -> None:
        """Name the listeners on which no client can log in: their logins need SCRAM users, and there are none."""
        if self._metadata.image.scram:
            return
        for listener in self.by_listener:
            if MECHANISM_NUMBERS.keys() >= set(self._config.of_listener(listener, "sasl.enabled.mechanisms")):
                logger.warning(
                    "no client can log in: there is no SCRAM user; set first.user and first.password"
                    " (FENCEPOST_FIRST_USER, FENCEPOST_FIRST_PASSWORD) and start again listener=%s",
                    listener,
                )

    def _sessions(self, listener: str) -> NewSession:
        config = self._config
        enabled = config.of_listener(listener, "sasl.enabled.mechanisms")
        mechanisms = {
            name: Mechanism(
                self._exchanges(listener, name), config.of_listener(listener, "connections.max.reauth.ms", name)
            )
            for name in enabled
        }
        mechanisms.update(self._of_brokers)
        delay_s = config.of_listener(listener, "connection.failed.authentication.delay.ms") / 1000
        receive_bytes_max = config.of_listener(listener, "sasl.server.max.receive.size")
        return lambda: SaslSession(mechanisms, delay_s, receive_bytes_max)

    def _exchanges(self, listener: str, mechanism: str) -> Callable[[], Exchange]:
        """What makes the exchanges of one mechanism. Each is imported here: most brokers of tests have none."""
        if mechanism == PLAIN:
            from fencepost.broker.security.sasl.plain import PlainExchange, PlainUsers

            module = jaas_of(self._config, listener, mechanism)
            users = PlainUsers({} if module is None else module.users)
            return lambda: PlainExchange(users)
        if mechanism == OAUTHBEARER:
            from fencepost.broker.security.sasl.oauthbearer import OAuthExchange

            validate = self._validator(listener)
            return lambda: OAuthExchange(validate)
        from fencepost.broker.security.sasl.scram import ScramCredentials, ScramExchange, usual_form

        number = MECHANISM_NUMBERS[mechanism]

        def find(user: str) -> "Credential | None":
            return self._metadata.image.scram.get(ScramUser(user, number))

        seen: list[tuple[object, Form]] = []

        def form() -> "Form":
            """Of the users at this moment; computed when they change."""
            users = self._metadata.image.scram
            if not seen or seen[0][0] is not users:
                seen[:] = [(users, usual_form(one for user, one in users.items() if user.mechanism == number))]
            return seen[0][1]

        credentials = ScramCredentials(mechanism, find, self._secret, form)
        return lambda: ScramExchange(credentials, secrets.token_urlsafe(NONCE_BYTES))

    def _validator(self, listener: str) -> "Validator":
        config = self._config
        if config.of_listener(listener, "sasl.server.callback.handler.class", OAUTHBEARER) == UNSECURED:
            from fencepost.broker.security.sasl.unsecured import UnsecuredValidator

            module = jaas_of(config, listener, OAUTHBEARER)
            return UnsecuredValidator({} if module is None else module.options, self._clock.now_ms)
        from fencepost.broker.security.sasl.signed import Expected, SignedValidator  # here: it is an optional extra
        from fencepost.broker.token_keys import TokenKeys

        url = config.of_listener(listener, "sasl.oauthbearer.jwks.endpoint.url")
        refresh_ms = config.of_listener(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms")
        keys = self._keys.setdefault(url, TokenKeys(url, refresh_ms / 1000))
        audience = config.of_listener(listener, "sasl.oauthbearer.expected.audience")
        expected = Expected(
            audience=None if audience is None else frozenset(audience),
            issuer=config.of_listener(listener, "sasl.oauthbearer.expected.issuer"),
            sub_claim=config.of_listener(listener, "sasl.oauthbearer.sub.claim.name"),
            scope_claim=config.of_listener(listener, "sasl.oauthbearer.scope.claim.name"),
            clock_skew_seconds=config.of_listener(listener, "sasl.oauthbearer.clock.skew.seconds"),
        )
        validator = SignedValidator(expected, self._clock.now_ms, keys.want)
        keys.give_to(validator.use_keys)
        return validator


async def _create_first_user(config: "BrokerConfig", metadata: "MetadataService") -> None:
    """Create the user of `first.user` if there is no SCRAM user yet, for both mechanisms."""
    name, password = config.first_user, config.first_password
    if name is None or password is None:
        return
    if metadata.image.scram:
        logger.info("first.user has no effect: there are users already, whose passwords stay")
        return
    for mechanism, number in MECHANISM_NUMBERS.items():
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password.encode(), salt, ITERATIONS)
        outcomes = await metadata.alter_credentials([], [CredentialUpsertion(name, number, ITERATIONS, salt, salted)])
        if outcomes[name].code is not ErrorCode.NONE:
            logger.error("cannot create the first user user=%r cause=%s", name, outcomes[name].message)
            return
        audit.info("USER_CHANGED by=first.user user=%r mechanism=%s iterations=%d", name, mechanism, ITERATIONS)
    logger.info("created the first user user=%r", name)
