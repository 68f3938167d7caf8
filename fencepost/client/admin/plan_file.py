"""Reads a plan from TOML or JSON, and names the place of what it does not understand."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from fencepost.client.admin.plan_types import ClusterPlan, WantedAcl, WantedConfigs, WantedTopic
from fencepost.client.admin.security_types import Acl, AclOperation, AclPermission, PatternType, ResourceType
from fencepost.client.errors import ConfigError

E = TypeVar("E", AclOperation, AclPermission, PatternType)

_SECTIONS = ("topics", "brokers", "groups", "acls")
_TOPIC_KEYS = ("partitions", "replication_factor", "configs", "unset", "state")
_CONFIG_KEYS = ("configs", "unset")
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_ACL_KEYS = (*_RESOURCES, "principals", "operations", "permission", "hosts", "pattern", "state")
_STATES = ("present", "absent")
ALL_BROKERS = "all"
CLUSTER_NAME = "kafka-cluster"


def read_plan(path: str | PathLike[str]) -> ClusterPlan:
    """The plan in a file: JSON by its name or its first brace, else TOML. Raises ConfigError, OSError."""
    place = Path(path)
    try:
        return parse_plan(place.read_text("utf-8"), json_named=place.suffix.lower() == ".json", place=str(place))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place} is no text in UTF-8: {error}") from error


def parse_plan(text: str, *, json_named: bool = False, place: str = "the plan") -> ClusterPlan:
    """The plan in a text. Raises ConfigError, which names the place."""
    import tomllib

    is_json = json_named or text.lstrip().startswith("{")
    try:
        content = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as error:  # what both raise is one
        hint = (
            "" if is_json or not place.endswith((".yaml", ".yml")) else "; a plan is written in TOML or JSON, not YAML"
        )
        raise ConfigError(f"{place} is no {'JSON' if is_json else 'TOML'}: {error}{hint}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{place}: a plan is an object with some of {', '.join(_SECTIONS)}")
    return plan_of(content)


def plan_of(content: Mapping[str, Any]) -> ClusterPlan:
    """The plan in what a file holds. Raises ConfigError, which names the place."""
    _known("", content, _SECTIONS)
    topics = tuple(_topic(name, told) for name, told in _table("topics", content).items())
    configs = [_configs("broker", "brokers", name, told) for name, told in _table("brokers", content).items()]
    configs += [_configs("group", "groups", name, told) for name, told in _table("groups", content).items()]
    rules = content.get("acls", [])
    if not isinstance(rules, list):
        raise ConfigError("acls: must be a list of rules ([[acls]] in TOML)")
    acls = [rule for number, told in enumerate(rules, 1) for rule in _acls(f"acls, rule {number}", told)]
    return ClusterPlan(topics, tuple(configs), tuple(dict.fromkeys(acls)))


# -- topics and settings


def _topic(name: str, told: Any) -> WantedTopic:
    place = f"topics.{name}"
    told = _object(place, told)
    _known(place, told, _TOPIC_KEYS)
    if _absent(place, told):
        if set(told) != {"state"}:
            raise ConfigError(f"{place}: a topic that shall be absent has nothing but its state")
        return WantedTopic(name, absent=True)
    return WantedTopic(
        name,
        _count(place, told, "partitions"),
        _count(place, told, "replication_factor"),
        _settings(place, told),
    )


def _configs(kind: str, section: str, name: str, told: Any) -> WantedConfigs:
    place = f"{section}.{name}"
    told = _object(place, told)
    _known(place, told, _CONFIG_KEYS)
    if kind == "broker" and name != ALL_BROKERS and not (name.isascii() and name.isdigit()):
        raise ConfigError(f"{place}: a broker is named by its id, or {ALL_BROKERS!r} for every one")
    return WantedConfigs(kind, "" if kind == "broker" and name == ALL_BROKERS else name, _settings(place, told))


def _settings(place: str, told: Mapping[str, Any]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for key, value in _flat(_object(f"{place}.configs", told.get("configs", {}))):
        found[key] = _setting(f"{place}.configs.{key}", value)
    for key in _words(f"{place}.unset", told.get("unset", [])):
        if key in found:
            raise ConfigError(f"{place}: {key} is both set and unset")
        found[key] = None
    return found


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """`retention.ms = 1` without quotes is a table in a table to TOML, and one setting to us."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
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


def _count(place: str, told: Mapping[str, Any], key: str) -> int:
    value = told.get(key, -1)
    if isinstance(value, bool) or not isinstance(value, int) or (key in told and value < 1):
        raise ConfigError(f"{place}.{key}: must be a whole number from 1 on, and is {value!r}")
    return value


# -- access rules


def _acls(place: str, told: Any) -> list[WantedAcl]:
    """One for each principal, host and operation that are named together."""
    told = _object(place, told)
    singular = {"principal": "principals", "operation": "operations", "host": "hosts"}
    told = {singular.get(key, key): value for key, value in told.items()}
    _known(place, told, _ACL_KEYS)
    named = [key for key in _RESOURCES if key in told]
    if len(named) != 1:
        raise ConfigError(f"{place}: name exactly one of {', '.join(_RESOURCES)}")
    resource = told[named[0]]
    if named[0] == "cluster":
        if resource is not True:
            raise ConfigError(f"{place}.cluster: can only be true")
        resource = CLUSTER_NAME
    if not isinstance(resource, str) or not resource:
        raise ConfigError(f"{place}.{named[0]}: must be a name, or * for all")
    for key in ("principals", "operations"):
        if not told.get(key):
            raise ConfigError(f"{place}: {key} must be given")
    permission = _member(f"{place}.permission", told.get("permission", "allow"), AclPermission)
    pattern = _member(f"{place}.pattern", told.get("pattern", "literal"), PatternType)
    absent = _absent(place, told)
    return [
        WantedAcl(Acl(_RESOURCES[named[0]], resource, principal, operation, permission, host, pattern), absent)
        for principal in _principals(place, told)
        for host in _words(f"{place}.hosts", told.get("hosts", ["*"]))
        for operation in (
            _member(f"{place}.operations", word, AclOperation)
            for word in _words(f"{place}.operations", told["operations"])
        )
    ]


def _principals(place: str, told: Mapping[str, Any]) -> Sequence[str]:
    found = _words(f"{place}.principals", told["principals"])
    for one in found:
        kind, colon, name = one.partition(":")
        if not colon or not kind or not name:
            raise ConfigError(f"{place}.principals: {one!r} must be of the form User:NAME, or User:* for all")
    return found


def _member(place: str, word: Any, kind: type[E]) -> E:
    """`describe_configs`, `DescribeConfigs` and `DESCRIBE_CONFIGS` are the same."""
    by_word = {one.name.replace("_", ""): one for one in kind if one.name not in ("UNKNOWN", "ANY", "MATCH")}
    found = by_word.get(str(word).replace("_", "").upper())
    if found is None:
        names = ", ".join(one.name.lower() for one in by_word.values())
        raise ConfigError(f"{place}: {word!r} is none of {names}")
    return found


# -- shapes


def _known(place: str, told: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in told:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.4)
            hint = f"the nearest is {close[0]!r}" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"{place + ': ' if place else ''}unknown key {key!r}; {hint}")


def _table(section: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(section, content.get(section, {}))


def _object(place: str, told: Any) -> Mapping[str, Any]:
    if not isinstance(told, dict):
        raise ConfigError(f"{place}: must be a table, and is {told!r}")
    return told


def _words(place: str, told: Any) -> list[str]:
    found = [told] if isinstance(told, str) else told
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ConfigError(f"{place}: must be a string or a list of strings")
    return found


def _absent(place: str, told: Mapping[str, Any]) -> bool:
    state = told.get("state", "present")
    if state not in _STATES:
        raise ConfigError(f"{place}.state: must be {' or '.join(_STATES)}, and is {state!r}")
    return bool(state == "absent")
