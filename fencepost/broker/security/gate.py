"""The check before every handler: requests that are refused as a whole, by the rows `Effect.REQUEST` of `rights`."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fencepost.broker.security.authorizer import CLUSTER_NAME
from fencepost.broker.security.checks import is_allowed
from fencepost.broker.security.ports import HasRights, RequestInfo
from fencepost.broker.security.refusals import refuse
from fencepost.broker.security.rights import ANY_NAME, RIGHTS, Effect, Right
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import ResponseValue


class _Need(NamedTuple):
    """A right that a request needs, and others that are as good."""

    right: Right
    instead: tuple[Right, ...]
    field: str | None
    """The field with the resource's name, if this name alone decides: the usual case, which must be quick."""


def _needs(rights: Iterable[Right], version: int) -> tuple[_Need, ...]:
    found, instead = [], []
    for right in rights:
        if right.effect is Effect.OTHER:
            instead.append(right)
            continue
        if right.effect is Effect.REQUEST and right.since <= version <= right.until:
            is_usual = right.of in _NAMES and not (instead or right.if_set or right.if_null)
            found.append(_Need(right, tuple(instead), right.of if is_usual else None))
        instead = []
    return tuple(found)


_NAMES = ("group_id", "transactional_id")
_NEEDS: dict[tuple[int, int], tuple[_Need, ...]] = {}
"""By API and version; filled on first use."""


def refusal(node: HasRights, request: Any, context: RequestInfo) -> ResponseValue | None:
    """The response to a request that lacks a right; None if its handler may run."""
    key = context.api_key, context.api_version
    needs = _NEEDS.get(key)
    if needs is None:
        needs = _NEEDS[key] = _needs(RIGHTS[ApiKey(context.api_key)], context.api_version)
    for right, instead, field in needs:
        name = None if field is None else getattr(request, field)
        if name is not None:
            allowed = is_allowed(node, context, right.operation, right.kind, name)
        else:
            allowed = (
                not _is_needed(right, request)
                or any(_has(node, request, context, other, log_denial=False) for other in instead)
                or _has(node, request, context, right, log_denial=True)
            )
        if not allowed:
            return refuse(request, context, right.error)
    return None


def _is_needed(right: Right, request: Any) -> bool:
    if right.if_set and not getattr(request, right.if_set):
        return False
    if right.if_null:
        return getattr(request, right.if_null) is None
    return not right.of or getattr(request, right.of) is not None


def _has(node: HasRights, request: Any, context: RequestInfo, right: Right, *, log_denial: bool) -> bool:
    """Whether the request has the right on every resource that it names."""
    operation, kind = right.operation, right.kind
    if right.of == ANY_NAME:
        authorizer = node.authorizer
        return authorizer is None or authorizer.allows_any(context.session, operation, kind)
    named = getattr(request, right.of) if right.of else CLUSTER_NAME
    names = (named,) if isinstance(named, str) else dict.fromkeys(named)
    return all(is_allowed(node, context, operation, kind, name, log_denial=log_denial) for name in names)
