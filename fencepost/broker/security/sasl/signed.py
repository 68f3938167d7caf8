"""Signed tokens (JWT, RFC 7519): checked with the issuer's keys (JWKS, RFC 7517), as Kafka checks them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from fencepost.broker.security.sasl.oauthbearer import Token, TokenRejected
from fencepost.broker.security.sasl.unsecured import claimed

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures by a private key only. With an HMAC, who can check a token could make one."""


class Expected(NamedTuple):
    """What a token must claim; None: not checked."""

    audience: frozenset[str] | None = None
    issuer: str | None = None
    sub_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_seconds: int = 30


class SignedValidator:
    """Accepts tokens that the issuer signed.

    A token with an unknown key id is rejected, and `want_keys` is called: the issuer may have a new key.
    """

    def __init__(self, expected: Expected, now_ms: Callable[[], int], want_keys: Callable[[], None]) -> None:
        self._expected = expected
        self._now_ms = now_ms
        self._want_keys = want_keys
        self._keys: KeySet | None = None

    def use_keys(self, key_set: Any) -> None:
        """Use these keys from now on, a decoded JWKS document. Raises ValueError if it has none that can be used."""
        try:
            keys = KeySet.import_key_set(key_set)
        except (JoseError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the key set cannot be used: {type(error).__name__}") from error
        if not keys.keys:
            raise ValueError("the key set has no keys")
        self._keys = keys

    def __call__(self, token: str) -> Token:
        if self._keys is None:
            self._want_keys()
            raise TokenRejected("the issuer's keys were not read yet")
        try:
            claims = jwt.decode(token, self._keys, algorithms=list(ALGORITHMS)).claims
        except InvalidKeyIdError:
            self._want_keys()
            raise TokenRejected("the token's key is not among the issuer's keys") from None
        except Exception as error:  # noqa: BLE001 - joserfc raises TypeError and others for some hostile headers
            raise TokenRejected(f"the token cannot be verified: {type(error).__name__}") from None
        expected = self._expected
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise TokenRejected("the token is of another issuer")
        if expected.audience is not None and not expected.audience & _audience(claims.get("aud")):
            raise TokenRejected("the token is for another audience")
        if claims.get("iat") is None:
            raise TokenRejected("the claim iat is missing")
        skew_ms = expected.clock_skew_seconds * 1000
        return claimed(claims, expected.sub_claim, expected.scope_claim, frozenset(), self._now_ms(), skew_ms)


def _audience(claim: Any) -> frozenset[str]:
    if isinstance(claim, str):
        return frozenset({claim})
    return frozenset(one for one in claim if isinstance(one, str)) if isinstance(claim, list) else frozenset()
