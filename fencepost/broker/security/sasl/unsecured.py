"""Tokens without a signature, as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler accepts them: for tests only."""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.broker.security.log_names import quoted
from fencepost.broker.security.sasl.oauthbearer import Token, TokenRejected

_PREFIX = "unsecuredValidator"
_SKEW = f"{_PREFIX}AllowableClockSkewMs"
OPTIONS = {
    f"{_PREFIX}PrincipalClaimName": "sub",
    f"{_PREFIX}ScopeClaimName": "scope",
    f"{_PREFIX}RequiredScope": "",
    _SKEW: "0",
}
"""The options in `sasl.jaas.config`, and their defaults."""


def options_problem(options: Mapping[str, str]) -> str | None:
    """What is wrong with the options of the unsecured validator, or None."""
    unknown = [name for name in options if name.startswith(_PREFIX) and name not in OPTIONS]
    if unknown:
        return f"{unknown[0]} is not an option of the unsecured validator; it has {', '.join(OPTIONS)}"
    skew_ms = options.get(_SKEW, "0")
    return None if skew_ms.isascii() and skew_ms.isdigit() else f"{_SKEW} is not a number of milliseconds"


class UnsecuredValidator:
    """Anyone can make such a token, for any user. `options` were checked by `options_problem`."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        principal, scope, required, skew_ms = (options.get(name, default) for name, default in OPTIONS.items())
        self._principal_claim, self._scope_claim = principal, scope
        self._required = frozenset(required.split())
        self._skew_ms = int(skew_ms)
        self._now_ms = now_ms

    def __call__(self, token: str) -> Token:
        header, claims, signature = _parts(token)
        if header.get("alg") != "none" or signature:
            raise TokenRejected("the token is signed, but the unsecured validator is configured")
        return claimed(claims, self._principal_claim, self._scope_claim, self._required, self._now_ms(), self._skew_ms)


def claimed(
    claims: Mapping[str, Any],
    principal_claim: str,
    scope_claim: str,
    required: frozenset[str],
    now_ms: int,
    skew_ms: int,
) -> Token:
    """The token's user and end. Raises TokenRejected for a token without them, or at another time."""
    principal = claims.get(principal_claim)
    if not isinstance(principal, str) or not principal.strip() or not _is_unicode(principal):
        raise TokenRejected(f"the claim {principal_claim} does not name a user")
    expires_ms = _milliseconds(claims, "exp")
    if expires_ms is None:
        raise TokenRejected("the claim exp is missing")
    if now_ms - skew_ms >= expires_ms:
        raise TokenRejected(f"the token of {quoted(principal)} has expired")
    issued_ms, starts_ms = _milliseconds(claims, "iat"), _milliseconds(claims, "nbf")
    for name, value in (("iat", issued_ms), ("nbf", starts_ms)):
        if value is not None and value > now_ms + skew_ms:
            raise TokenRejected(f"the claim {name} of {quoted(principal)} is in the future")
    scopes = claims.get(scope_claim, "")
    words = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
    found = frozenset(one for one in words if isinstance(one, str))
    if not required <= found:
        raise TokenRejected(
            f"the token of {quoted(principal)} lacks a scope", "insufficient_scope", " ".join(sorted(required))
        )
    return Token(principal, expires_ms)


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e12 < value < 1e12:
        raise TokenRejected(f"the claim {name} is not a time")
    return math.floor(value * 1000)  # as the clock counts: rounded up, a token of this millisecond is in the future


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRejected("the token does not have three parts")
    try:
        header, claims = (json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2])
    except (ValueError, binascii.Error, RecursionError):
        raise TokenRejected("the token is not base64 of JSON") from None
    if not (isinstance(header, dict) and isinstance(claims, dict)):
        raise TokenRejected("the token has no claims")
    return header, claims, parts[2]


def _is_unicode(text: str) -> bool:
    """Whether the text has no half of a surrogate pair, which JSON may hold and UTF-8 may not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
