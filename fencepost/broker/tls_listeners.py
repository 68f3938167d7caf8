"""The TLS of the configured listeners: made at the start, and made again when a certificate or a setting changes."""

import logging
from functools import partial

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.listeners import ClientListener
from fencepost.broker.config.tls_settings import tls_settings
from fencepost.broker.network.tls import CertificateRefused, TlsListener
from fencepost.broker.ports import Broker
from fencepost.broker.security.distinguished_name import subject_name
from fencepost.broker.security.keystores import StoreError
from fencepost.broker.security.principal import Principal
from fencepost.broker.security.principal_mapping import NoMatchingRule, PrincipalMapper
from fencepost.broker.security.security_protocol import SecurityProtocol
from fencepost.broker.security.tls_context import TlsSettings, make_context

logger = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""How often the files of certificates and the settings are compared with those in use."""


class CertificateWatch:
    """The listeners with TLS, and the files and settings that each one was made from."""

    def __init__(self, node: Broker) -> None:
        self._node = node
        self._listeners: dict[str, TlsListener] = {}
        self._seen: dict[str, tuple[TlsSettings, object]] = {}

    def make(self, listener: ClientListener) -> TlsListener:
        """The TLS of a listener. Raises StoreError."""
        config = self._node.config
        settings = tls_settings(listener, config)
        self._seen[listener.name] = settings, settings.fingerprint()
        principal_of = None
        if listener.protocol is SecurityProtocol.SSL:  # with SASL, the login names the principal
            mapper = PrincipalMapper(str(config.of_listener(listener.name, "ssl.principal.mapping.rules")))
            principal_of = partial(_principal, mapper)
        found = self._listeners[listener.name] = TlsListener(make_context(settings), principal_of)
        return found

    async def run(self) -> None:
        """Give later handshakes the new certificate within a few seconds. A broken one is logged once."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            for listener in self._node.config.client_listeners:
                if listener.name in self._listeners:
                    await self._renew(listener, self._node.config)

    async def _renew(self, listener: ClientListener, config: BrokerConfig) -> None:
        settings = tls_settings(listener, config)
        seen = settings, settings.fingerprint()
        if seen == self._seen[listener.name]:
            return
        self._seen[listener.name] = seen
        try:
            context = await trio.to_thread.run_sync(make_context, settings)
        except StoreError as error:
            logger.error("cannot use the new certificate, the listener keeps the old one cause=%s", error)
        else:
            self._listeners[listener.name].context = context
            logger.info("new certificate in use listener=%s", listener.name)


def _principal(mapper: PrincipalMapper, certificate: bytes) -> Principal:
    try:
        return Principal("User", mapper.name(subject_name(certificate)))
    except NoMatchingRule as error:
        raise CertificateRefused(str(error)) from None
