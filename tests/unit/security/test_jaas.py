"""Kafka's JAAS syntax."""

import pytest

from fencepost.broker.security.sasl.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_of_the_plain_module() -> None:
    module = parse_jaas(f'{PLAIN} required\n  username="admin" password=admin-secret user_alice="a,=\\"; ñ" user_b=x;')
    assert module.name == PLAIN
    assert module.users == {"alice": 'a,="; ñ', "b": "x"}
    assert module.options["username"] == "admin"


def test_a_module_without_options() -> None:
    assert parse_jaas(" Module  Required ; ").options == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "semicolon"),
        (f'{PLAIN} required user_alice="hunter2"', "semicolon"),
        (f'{PLAIN} user_alice="hunter2";', "control flag"),
        (f'{PLAIN} required user_alice "hunter2";', "option 1 .* is not of the form"),
        (f'{PLAIN} required a="b" user_alice=;', "option 2 .* is not of the form"),
        (f'{PLAIN} required user_alice="hunter2;', "position"),
        (f"{PLAIN} required user_alice='hunter2';", "position"),
        (";", "login module"),
    ],
)
def test_mistakes_are_explained_without_secrets(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)


def test_repr_has_no_secret() -> None:
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required user_alice="hunter2";'))
