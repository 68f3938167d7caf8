"""Tokens of OAUTHBEARER: signed ones against keys, unsecured ones as Kafka's handler for tests; and their claims."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from fencepost.broker.security.sasl.oauthbearer import Token, TokenRejected
from fencepost.broker.security.sasl.signed import Expected, SignedValidator
from fencepost.broker.security.sasl.unsecured import UnsecuredValidator, claimed, options_problem
from fencepost.broker.token_keys import read_key_set

NOW_S = 1_000_000
EC = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)
RSA = RSAKey.generate_key(2048, {"kid": "rsa"}, private=True)
OTHER = ECKey.generate_key("P-256", {"kid": "ec"}, private=True)
PUBLIC = KeySet([EC, RSA]).as_dict(private=False)
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60, "iss": "https://issuer", "aud": ["kafka", "other"]}


def signed(key: Any = EC, alg: str = "ES256", kid: str | None = "ec", **changed: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    return jwt.encode({"alg": alg} | ({"kid": kid} if kid else {}), claims, key, algorithms=[alg])


def unsecured(header: Any = None, signature: str = "", **changed: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    parts = [json.dumps(one).encode() for one in (header or {"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), signature])


def validator(expected: Expected = Expected(), wanted: Callable[[], None] = lambda: None) -> SignedValidator:  # noqa: B008
    made = SignedValidator(expected, lambda: NOW_S * 1000, wanted)
    made.use_keys(PUBLIC)
    return made


@pytest.mark.parametrize(("key", "alg", "kid"), [(EC, "ES256", "ec"), (RSA, "RS256", "rsa"), (RSA, "PS512", "rsa")])
def test_a_signed_token_names_its_user_and_its_end(key: Any, alg: str, kid: str) -> None:
    assert validator()(signed(key, alg, kid)) == Token("alice", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (signed(OTHER), "cannot be verified"),
        (signed(kid="new"), "not among the issuer's keys"),
        (unsecured(), "cannot be verified"),
        (unsecured({"alg": "ES256", "kid": "ec"}), "cannot be verified"),
        (signed(OctKey.import_key(json.dumps(PUBLIC["keys"][0])), "HS256"), "cannot be verified"),
        (signed(exp=None), "exp is missing"),
        (signed(iat=None), "iat is missing"),
        (signed(sub=None), "sub does not name a user"),
        (signed(sub=" "), "sub does not name a user"),
        (signed(sub=["alice"]), "sub does not name a user"),
        (signed(exp=NOW_S - 30), "expired"),
        (signed(iat=NOW_S + 31), "iat .* in the future"),
        (signed(nbf=NOW_S + 31), "nbf .* in the future"),
        (signed(exp="soon"), "not a time"),
        ("", "cannot be verified"),
        ("a.b.c", "cannot be verified"),
    ],
)
def test_a_signed_token_is_rejected(token: str, why: str) -> None:
    """Also one that is signed with an HMAC by the public key, and one whose algorithm is "none" (RFC 8725)."""
    with pytest.raises(TokenRejected, match=why):
        validator()(token)


def test_clocks_may_differ_a_little() -> None:
    """sasl.oauthbearer.clock.skew.seconds"""
    assert validator()(signed(exp=NOW_S - 29, iat=NOW_S + 29)).principal == "alice"
    with pytest.raises(TokenRejected):
        validator(Expected(clock_skew_seconds=0))(signed(exp=NOW_S))


@pytest.mark.parametrize(
    ("expected", "good", "bad"),
    [
        (Expected(issuer="https://issuer"), {}, {"iss": "https://other"}),
        (Expected(issuer="https://issuer"), {}, {"iss": None}),
        (Expected(audience=frozenset({"kafka"})), {}, {"aud": "other"}),
        (Expected(audience=frozenset({"kafka"})), {"aud": "kafka"}, {"aud": None}),
        (Expected(sub_claim="azp"), {"azp": "app"}, {}),
    ],
)
def test_what_a_token_must_claim(expected: Expected, good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert validator(expected)(signed(**good)).principal == good.get("azp", "alice")
    with pytest.raises(TokenRejected):
        validator(expected)(signed(**bad))


def test_an_unknown_key_asks_for_the_keys() -> None:
    asked: list[None] = []
    one = validator(wanted=lambda: asked.append(None))
    with pytest.raises(TokenRejected):
        one(signed(kid="new"))
    assert len(asked) == 1
    new = ECKey.generate_key("P-256", {"kid": "new"}, private=True)
    one.use_keys(KeySet([new]).as_dict(private=False))
    assert one(signed(new, kid="new")).principal == "alice"


@pytest.mark.parametrize("document", [{}, [], None, {"keys": []}, {"keys": [1]}, {"keys": [{"kty": "?"}]}, {"keys": 5}])
def test_a_document_without_keys_changes_nothing(document: Any) -> None:
    one = validator()
    with pytest.raises(ValueError, match="key set"):
        one.use_keys(document)
    assert one(signed()).principal == "alice"


def test_keys_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key set.json"
    file.write_text(json.dumps(PUBLIC))
    assert read_key_set(file.as_uri()) == PUBLIC
    with pytest.raises(ValueError, match="neither https nor file"):
        read_key_set("http://127.0.0.1/keys")


def test_unsecured_tokens() -> None:
    """OAuthBearerUnsecuredValidatorCallbackHandler and its options."""
    options = {"unsecuredValidatorPrincipalClaimName": "azp", "unsecuredValidatorRequiredScope": "a b"}
    strict = UnsecuredValidator(options, lambda: NOW_S * 1000)
    assert strict(unsecured(azp="app", scope="b c a")) == Token("app", (NOW_S + 60) * 1000)
    assert strict(unsecured(azp="app", scope=["a", "b"])).principal == "app"
    with pytest.raises(TokenRejected, match="lacks a scope") as caught:
        strict(unsecured(azp="app", scope="a"))
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "a b")
    plain = UnsecuredValidator({}, lambda: NOW_S * 1000)
    assert plain(unsecured()).principal == "alice"
    for token in (signed(), unsecured(signature="x"), unsecured(exp=NOW_S), unsecured(exp=None), "..", "a.b", "[].{}."):
        with pytest.raises(TokenRejected):
            plain(token)


def test_a_token_of_this_millisecond_is_not_in_the_future() -> None:
    """Clocks count whole milliseconds, and a token may have been made in a part of the present one."""
    plain = UnsecuredValidator({}, lambda: NOW_S * 1000)
    assert plain(unsecured(iat=NOW_S + 0.0009, nbf=NOW_S + 0.0006)).principal == "alice"
    with pytest.raises(TokenRejected, match="iat of 'alice' is in the future"):
        plain(unsecured(iat=NOW_S + 0.0015))


def test_options_of_the_unsecured_validator() -> None:
    assert (
        options_problem({"unsecuredLoginStringClaim_sub": "x", "unsecuredValidatorAllowableClockSkewMs": "5"}) is None
    )
    assert "is not an option" in str(options_problem({"unsecuredValidatorScope": "x"}))
    assert "not a number" in str(options_problem({"unsecuredValidatorAllowableClockSkewMs": "soon"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64"]), inner),
    max_leaves=5,
)
HEADERS = st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ", "zip", "jwk"]), JSON | st.just("ES256"))


@given(st.text(max_size=40) | st.tuples(HEADERS | JSON, st.text(max_size=9)).map(lambda pair: unsecured(*pair)))
def test_any_token_is_rejected(token: str) -> None:
    with pytest.raises(TokenRejected):
        validator()(token)


def test_half_of_a_surrogate_pair_is_no_name() -> None:
    """JSON may hold one, but no message can name such a user."""
    with pytest.raises(TokenRejected, match="the claim sub does not name a user"):
        claimed({"sub": "\ud800", "exp": 10}, "sub", "scope", frozenset(), now_ms=0, skew_ms=0)
