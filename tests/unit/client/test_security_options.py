"""The options that say whom to trust and who we are: what fits together, what OpenSSL takes, by which names."""

import logging
from typing import Any

import pytest

import fencepost
from fencepost import ConfigError
from fencepost.client.config import ClientConfig
from fencepost.client.config_parsing import from_dotted, parse
from tests.kit.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"security_protocol": "tls"}, "must be one of plaintext, ssl"),
        ({"security_protocol": "sasl_ssl"}, "needs sasl_mechanism"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "GSSAPI"}, "must be one of PLAIN"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN", "sasl_username": "a"}, "sasl_password"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}, "'sasl_plaintext', not 'plaintext'"),
        ({"ssl_cafile": "x"}, "security_protocol 'ssl' or 'sasl_ssl', not 'plaintext'"),
        ({"security_protocol": "ssl", "ssl_keyfile": "x"}, "needs its certificate"),
        ({"security_protocol": "ssl", "ssl_enabled_protocols": "TLSv1"}, "must name some of TLSv1.2"),
        ({"security_protocol": "ssl", "sasl_password": ""}, "'sasl_password': the value must be a string"),
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        fencepost.Client("a:1", **options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile /nowhere/ca.pem cannot be used: No such file"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile /.*/ca.pem cannot be used: No such file"),
        ({"ssl_ca_pem": "nonsense"}, "ssl_ca_pem cannot be used"),
        ({"ssl_ciphers": "nonsense"}, "ssl_ciphers cannot be used"),
        ({"ssl_certfile": "/no", "ssl_keyfile": "/key"}, "ssl_certfile /no with ssl_keyfile /key cannot.*No such file"),
    ],
)
def test_what_openssl_does_not_take(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        fencepost.Client("a:1", security_protocol="ssl", **options)


@pytest.mark.parametrize("password", [None, "wrong-one"])
@pytest.mark.parametrize("strings", [False, True])
def test_an_encrypted_key_without_its_password(
    authority: Authority, password: str | None, strings: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL would ask at the terminal; and no secret shows."""
    caplog.set_level(logging.DEBUG)
    own = authority.sign("own", password="right-one")
    options: dict[str, Any] = {"ssl_certfile": str(own.certificate), "ssl_keyfile": str(own.key)}
    if strings:
        options = {"ssl_certificate_pem": own.certificate.read_text(), "ssl_key_pem": own.key.read_text()}
    with pytest.raises(ConfigError, match=r"encrypted|cannot be used") as told:
        fencepost.Client("a:1", security_protocol="ssl", ssl_key_password=password, **options)
    right = fencepost.Client("a:1", security_protocol="ssl", ssl_key_password="right-one", **options)
    for text in (str(told.value), repr(right._config), caplog.text):
        assert "wrong-one" not in text
        assert "right-one" not in text
        assert "PRIVATE KEY" not in text


def test_names_that_kafka_and_librdkafka_have() -> None:
    """The same from Java's property files, from librdkafka's and from aiokafka's keywords."""
    java = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'org.x.PlainLoginModule required username="u\\"s" password="p;w";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.keystore.key": "key",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.enabled.protocols": "TLSv1.3",
        "reconnect.backoff.max.ms": "700",
    }
    librdkafka = {
        "metadata.broker.list": "a:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": 'u"s',
        "sasl.password": "p;w",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.pem": "chain",
        "ssl.key.pem": "key",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.enabled.protocols": "TLSv1.3",
        "reconnect.backoff.max.ms": 700,
    }
    keywords = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": 'u"s',
        "sasl_password": "p;w",
        "ssl_cafile": "/ca.pem",
        "ssl_certificate_pem": "chain",
        "ssl_key_pem": "key",
        "ssl_check_hostname": False,
        "ssl_enabled_protocols": ["TLSv1.3"],
        "reconnect_backoff_max": 0.7,
    }
    configs = [
        parse(ClientConfig, {}, defaults=from_dotted(java)),
        parse(ClientConfig, {}, defaults=from_dotted(librdkafka)),
        parse(ClientConfig, {"bootstrap_servers": "a:1", **keywords}),
    ]
    assert configs[0] == configs[1] == configs[2]
    for text in map(repr, configs):
        assert "p;w" not in text
    with pytest.raises(ConfigError, match="must be PEM"):
        fencepost.Client.from_config({"bootstrap.servers": "a:1", "ssl.truststore.type": "JKS"})


def test_librdkafkas_other_names() -> None:
    long = from_dotted(
        {
            "bootstrap.servers": "a:1",
            "socket.timeout.ms": "7000",
            "queue.buffering.max.ms": "5",
            "message.timeout.ms": 9000,
            "compression.codec": "lz4",
            "fetch.wait.max.ms": 10,
        }
    )
    assert (long["request_timeout_ms"], long["linger_ms"], long["delivery_timeout_ms"]) == ("7000", "5", 9000)
    assert (long["compression_type"], long["fetch_max_wait_ms"]) == ("lz4", 10)
    with pytest.raises(ConfigError, match=r"unknown option 'plugin\.library\.paths'"):
        from_dotted({"bootstrap.servers": "a:1", "plugin.library.paths": "x"})
