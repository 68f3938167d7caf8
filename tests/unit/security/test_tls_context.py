"""Keystores and truststores in both formats, what is refused, and cipher suites by their names."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.broker.config.broker_config import ConfigError, load_config
from fencepost.broker.config.tls_settings import tls_settings
from fencepost.broker.security.keystores import StoreError
from fencepost.broker.security.tls_context import TLS13_SUITES, TlsSettings, make_context, openssl_name
from tests.kit.certificates import Authority, as_pkcs12, as_pkcs12_truststore


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


def settings_of(*assignments: str, listener: str = "SSL") -> TlsSettings:
    config = load_config(assignments=[f"listeners={listener}://:9093", *assignments])
    return tls_settings(config.client_listeners[0], config)


@pytest.fixture(scope="module")
def pem(authority: Authority) -> Path:
    file = authority.ca.with_name("both.pem")
    file.write_text(authority.sign("server").both)
    return file


def test_a_pem_file_and_a_truststore(authority: Authority, pem: Path) -> None:
    trust = ["ssl.client.auth=required", f"ssl.truststore.location={authority.ca}", "ssl.truststore.type=PEM"]
    context = make_context(settings_of(f"ssl.keystore.location={pem}", "ssl.keystore.type=PEM", *trust))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert [dict(one["subject"][0])["commonName"] for one in context.get_ca_certs()] == ["fencepost tests"]
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


def test_pem_within_the_settings(authority: Authority) -> None:
    """KIP-651, with an encrypted key."""
    own = authority.sign("strings", password="for-the-key")
    given = [
        f"ssl.keystore.certificate.chain={own.certificate.read_text()}",
        f"ssl.keystore.key={own.key.read_text()}",
        f"ssl.truststore.certificates={authority.ca.read_text()}",
        "ssl.client.auth=requested",
    ]
    assert make_context(settings_of(*given, "ssl.key.password=for-the-key")).verify_mode is ssl.CERT_OPTIONAL
    with pytest.raises(StoreError, match=r"the private key is encrypted; set ssl\.key\.password"):
        make_context(settings_of(*given))
    with pytest.raises(StoreError, match=r"listener SSL: ssl\.keystore\.key cannot be used") as refused:
        make_context(settings_of(*given, "ssl.key.password=another-word"))
    assert "another-word" not in str(refused.value)


def test_pkcs12_for_both_stores(authority: Authority) -> None:
    own = as_pkcs12(authority.sign("store"), "for-the-store")
    trusted = as_pkcs12_truststore(authority.ca, "for-the-trust")
    given = [
        f"ssl.keystore.location={own}",
        "ssl.keystore.type=PKCS12",
        f"ssl.truststore.location={trusted}",
        "ssl.truststore.password=for-the-trust",
        "ssl.client.auth=required",
    ]
    assert make_context(settings_of(*given, "ssl.keystore.password=for-the-store")).get_ca_certs()
    with pytest.raises(StoreError, match=r"ssl\.keystore\.password is wrong, or the file is damaged") as refused:
        make_context(settings_of(*given, "ssl.keystore.password=another-word"))
    assert "another-word" not in str(refused.value)


def test_a_store_of_javas_own_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    converted = rf"-srckeystore {store} -destkeystore {store.with_suffix('.p12')} -deststoretype PKCS12"
    with pytest.raises(StoreError, match=rf"keytool -importkeystore {converted}"):
        make_context(settings_of(f"ssl.keystore.location={store}"))


def test_stores_that_are_not_what_the_type_says(pem: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"has the content of PEM, but ssl\.keystore\.type=PKCS12"):
        make_context(settings_of(f"ssl.keystore.location={pem}", "ssl.keystore.type=PKCS12"))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(StoreError, match="has the content of no known store"):
        make_context(settings_of(f"ssl.keystore.location={tmp_path / 'text'}"))
    (tmp_path / "half").write_text(pem.read_text().partition("-----BEGIN CERTIFICATE")[0])
    with pytest.raises(StoreError, match="no private key in PEM with the certificate that belongs to it"):
        make_context(settings_of(f"ssl.keystore.location={tmp_path / 'half'}"))
    with pytest.raises(StoreError, match=r"/absent cannot be used: No such file or directory"):
        make_context(settings_of(f"ssl.keystore.location={tmp_path}/absent"))
    with pytest.raises(StoreError, match=rf"ssl\.keystore\.location {Path.cwd()}/absent cannot be used"):
        make_context(settings_of("ssl.keystore.location=absent"))


def test_a_listener_with_tls_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match=r"SSL uses SSL and needs a certificate; set ssl\.keystore\.location"):
        settings_of()


def test_a_setting_of_one_listener_overrides_that_of_all(pem: Path) -> None:
    """Kafka's prefix `listener.name.<name in lower case>.`."""
    names = "listener.security.protocol.map=LAN:SSL,WAN:SSL"
    own = [f"ssl.keystore.location={pem}", "ssl.client.auth=requested", "listener.name.wan.ssl.client.auth=required"]
    config = load_config(assignments=["listeners=LAN://:1,WAN://:2", names, *own])
    assert [tls_settings(one, config).client_auth for one in config.client_listeners] == ["requested", "required"]
    renewed = config.with_dynamic({}, {"listener.name.lan.ssl.client.auth": "none"})
    assert [tls_settings(one, renewed).client_auth for one in renewed.client_listeners] == ["none", "required"]
    with pytest.raises(ConfigError, match=r"listener\.name\.vpn\.ssl\.client\.auth: listeners has no VPN, only LAN"):
        load_config(assignments=["listeners=LAN://:1", names, *own[:2], "listener.name.vpn.ssl.client.auth=none"])


def test_with_sasl_only_the_listeners_own_client_auth_counts(pem: Path) -> None:
    """Kafka's ChannelBuilders: a certificate that all listeners ask for is not asked for beside a login."""
    given = [f"ssl.keystore.location={pem}", "ssl.client.auth=required", "sasl.enabled.mechanisms=SCRAM-SHA-512"]
    assert settings_of(*given, listener="SASL_SSL").client_auth == "none"
    own = "listener.name.sasl_ssl.ssl.client.auth=requested"
    assert settings_of(*given, own, listener="SASL_SSL").client_auth == "requested"


def test_versions_and_suites(pem: Path) -> None:
    keystore = f"ssl.keystore.location={pem}"
    base = settings_of(keystore)
    old = make_context(settings_of(keystore, "ssl.cipher.suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))
    assert old.maximum_version is ssl.TLSVersion.TLSv1_2
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in {one["name"] for one in old.get_ciphers()}
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" not in {one["name"] for one in old.get_ciphers()}
    assert make_context(replace(base, cipher_suites=TLS13_SUITES)).minimum_version is ssl.TLSVersion.TLSv1_3
    assert make_context(replace(base, protocol="TLSv1.2")).maximum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(StoreError, match="leave no enabled protocol"):
        make_context(replace(base, protocol="TLSv1.2", enabled_protocols=("TLSv1.3",)))
    with pytest.raises(ConfigError, match=r"OpenSSL enables the suites of TLS 1\.3 together"):
        settings_of(keystore, "ssl.cipher.suites=TLS_AES_128_GCM_SHA256")
    with pytest.raises(StoreError, match=r"ssl\.cipher\.suites cannot be used"):
        make_context(replace(base, cipher_suites=("TLS_NO_SUCH_SUITE",)))


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_openssls_names_of_suites(iana: str, openssl: str) -> None:
    context = ssl.create_default_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    assert openssl_name(iana) == openssl
    assert openssl in {one["name"] for one in context.get_ciphers()}
