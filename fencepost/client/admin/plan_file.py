"""Reads a plan from TOML or JSON. Errors name the place in the text."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from fencepost.client.admin.plan_types import ClusterPlan, WantedAcl, WantedConfigs, WantedTopic
from fencepost.client.admin.security_types import Acl
from fencepost.client.errors import ConfigError
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType

E = TypeVar("E", AclOperation, AclPermission, PatternType)

_SECTIONS = ("topics", "brokers", "groups", "acls")
_TOPIC_KEYS = ("partitions", "replication_factor", "configs", "unset", "state")
_CONFIG_KEYS = ("configs", "unset")
_RESOURCES = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "cluster": AclResourceType.CLUSTER,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "delegation_token": AclResourceType.DELEGATION_TOKEN,
    "user": AclResourceType.USER,
}
_ACL_KEYS = (*_RESOURCES, "principals", "operations", "permission", "hosts", "pattern", "state")
_STATES = ("present", "absent")
_DIGITS = 11
"""More than a broker's id can have."""
_MOST = {"partitions": 2**31 - 1, "replication_factor": 2**15 - 1}
"""The maxima of the protocol."""
_SINGULAR = {"principal": "principals", "operation": "operations", "host": "hosts"}
ALL_BROKERS = "all"
CLUSTER_NAME = "kafka-cluster"


def read_plan(path: str | PathLike[str]) -> ClusterPlan:
    """The plan in a file: JSON by its name or its first brace, else TOML. Raises ConfigError, OSError."""
    place = Path(path)
    try:
        return parse_plan(place.read_text("utf-8"), json_named=place.suffix.lower() == ".json", place=str(place))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place} is not UTF-8 text: {error}") from error


def parse_plan(text: str, *, json_named: bool = False, place: str = "the plan") -> ClusterPlan:
    """The plan in a text. Raises ConfigError, which names the place."""
    import tomllib

    is_json = json_named or text.lstrip().startswith("{")
    try:
        content = json.loads(text, object_pairs_hook=_once) if is_json else tomllib.loads(text)
    except _Twice as error:
        raise ConfigError(f"{place}: the key {str(error)!r} appears more than once in the same object") from error
    except ValueError as error:  # the base class of both parsers' errors
        hint = (
            "" if is_json or not place.endswith((".yaml", ".yml")) else "; a plan is written in TOML or JSON, not YAML"
        )
        raise ConfigError(f"{place} is not valid {'JSON' if is_json else 'TOML'}: {error}{hint}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{place}: a plan must be an object with one or more of {', '.join(_SECTIONS)}")
    return plan_of(content)


class _Twice(Exception):
    """An object of JSON has this key more than once; TOML's parser reports that itself."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice(key)
        found[key] = value
    return found


def plan_of(content: Mapping[str, Any]) -> ClusterPlan:
    """The plan in the content of a file. Raises ConfigError, which names the place."""
    _known("", content, _SECTIONS)
    topics = tuple(_topic(name, given) for name, given in _table("topics", content).items())
    configs = _brokers(_table("brokers", content))
    configs += [_configs("group", f"groups.{name}", name, given) for name, given in _table("groups", content).items()]
    rules = content.get("acls", [])
    if not isinstance(rules, list):
        raise ConfigError("acls: must be a list of rules ([[acls]] in TOML)")
    acls = [rule for number, given in enumerate(rules, 1) for rule in _acls(f"acls, rule {number}", given)]
    return ClusterPlan(topics, tuple(configs), tuple(dict.fromkeys(acls)))


# -- topics and settings


def _topic(name: str, given: Any) -> WantedTopic:
    place = f"topics.{name}"
    given = _object(place, given)
    _known(place, given, _TOPIC_KEYS)
    if _absent(place, given):
        if set(given) != {"state"}:
            raise ConfigError(f"{place}: a topic with state absent must have no other keys")
        return WantedTopic(name, absent=True)
    return WantedTopic(
        name, _count(place, given, "partitions"), _count(place, given, "replication_factor"), _settings(place, given)
    )


def _brokers(given: Mapping[str, Any]) -> list[WantedConfigs]:
    """The settings of brokers, by their ids without leading zeros."""
    found: dict[str, WantedConfigs] = {}
    for written, one in given.items():
        place = f"brokers.{written}"
        if written == ALL_BROKERS:
            name = ""
        elif written.isascii() and written.isdigit() and len(written.lstrip("0")) < _DIGITS:
            name = str(int(written))
        else:
            raise ConfigError(f"{place}: name a broker by its id, or {ALL_BROKERS!r} for all brokers")
        if name in found:
            raise ConfigError(f"{place}: broker {name} is named more than once")
        found[name] = _configs("broker", place, name, one)
    return list(found.values())


def _configs(kind: str, place: str, name: str, given: Any) -> WantedConfigs:
    given = _object(place, given)
    _known(place, given, _CONFIG_KEYS)
    return WantedConfigs(kind, name, _settings(place, given))


def _settings(place: str, given: Mapping[str, Any]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    configs = f"{place}.configs"
    for key, value in _flat(configs, _object(configs, given.get("configs", {}))):
        if key in found:
            raise ConfigError(f"{configs}: {key} is set more than once")
        found[key] = _setting(f"{configs}.{key}", value)
    unset = _words(f"{place}.unset", given.get("unset", []))
    for key in unset:
        if key in found:
            raise ConfigError(f"{place}: {key} is both set and unset")
        if unset.count(key) > 1:
            raise ConfigError(f"{place}.unset: {key} appears more than once")
    return {**found, **dict.fromkeys(unset)}


def _flat(place: str, table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Unquoted `retention.ms = 1` is a table in a table in TOML, and one setting in a plan."""
    for key, value in table.items():
        if isinstance(value, dict):
            if not value:
                raise ConfigError(f"{place}.{prefix}{key}: must not be empty")
            yield from _flat(place, value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _setting(place: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if value is None:
        return None
    raise ConfigError(f"{place}: must be a string, a number, true or false, or a list of strings")


def _count(place: str, given: Mapping[str, Any], key: str) -> int:
    value = given.get(key, -1)
    most = _MOST[key]
    if key in given and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most):
        raise ConfigError(f"{place}.{key}: must be a whole number from 1 to {most}, not {value!r}")
    return int(value)


def _acls(place: str, given: Any) -> list[WantedAcl]:
    """One rule for each combination of principal, host and operation."""
    given = _object(place, given)
    for one, several in _SINGULAR.items():
        if one in given and several in given:
            raise ConfigError(f"{place}: give {one} or {several}, not both")
    given = {"hosts": ["*"], **{_SINGULAR.get(key, key): value for key, value in given.items()}}
    _known(place, given, _ACL_KEYS)
    named = [key for key in _RESOURCES if key in given]
    if len(named) != 1:
        raise ConfigError(f"{place}: name exactly one of {', '.join(_RESOURCES)}")
    resource = given[named[0]]
    if named[0] == "cluster":
        if resource is not True:
            raise ConfigError(f"{place}.cluster: must be true")
        resource = CLUSTER_NAME
    if not isinstance(resource, str) or not resource:
        raise ConfigError(f"{place}.{named[0]}: must be a name, or * for all")
    for key in _SINGULAR.values():
        if not given.get(key):
            raise ConfigError(f"{place}: {key} must be given")
    permission = _member(f"{place}.permission", given.get("permission", "allow"), AclPermission)
    pattern = _member(f"{place}.pattern", given.get("pattern", "literal"), PatternType)
    absent = _absent(place, given)
    return [
        WantedAcl(Acl(_RESOURCES[named[0]], resource, principal, operation, permission, host, pattern), absent)
        for principal in _principals(place, given)
        for host in _words(f"{place}.hosts", given["hosts"])
        for operation in (
            _member(f"{place}.operations", word, AclOperation)
            for word in _words(f"{place}.operations", given["operations"])
        )
    ]


def _principals(place: str, given: Mapping[str, Any]) -> Sequence[str]:
    found = _words(f"{place}.principals", given["principals"])
    for one in found:
        kind, colon, name = one.partition(":")
        if not colon or not kind or not name:
            raise ConfigError(f"{place}.principals: {one!r} must be of the form User:NAME, or User:* for all")
    return found


def _member(place: str, word: Any, kind: type[E]) -> E:
    """The member for a name; `describe_configs`, `DescribeConfigs` and `DESCRIBE_CONFIGS` are the same."""
    by_word = {one.name.replace("_", ""): one for one in kind if one.name not in ("UNKNOWN", "ANY", "MATCH")}
    found = by_word.get(str(word).replace("_", "").upper())
    if found is None:
        names = ", ".join(one.name.lower() for one in by_word.values())
        raise ConfigError(f"{place}: {word!r} must be one of {names}")
    return found


# -- shapes


def _known(place: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.4)
            hint = f"the nearest is {close[0]!r}" if close else f"known keys are {', '.join(known)}"
            raise ConfigError(f"{place + ': ' if place else ''}unknown key {key!r}; {hint}")


def _table(section: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(section, content.get(section, {}))


def _object(place: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{place}: must be a table, not {given!r}")
    for key in given:
        if not isinstance(key, str):  # possible only in a program's mapping
            raise ConfigError(f"{place}: {key!r} must be a string")
    return given


def _words(place: str, given: Any) -> list[str]:
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ConfigError(f"{place}: must be a string or a list of strings")
    return found


def _absent(place: str, given: Mapping[str, Any]) -> bool:
    state = given.get("state", "present")
    if state not in _STATES:
        raise ConfigError(f"{place}.state: must be {' or '.join(_STATES)}, not {state!r}")
    return bool(state == "absent")
