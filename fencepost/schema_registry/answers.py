"""Which path asks for what: Confluent's paths and parameters, and the JSON of each answer. Pure."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from fencepost.schema_registry import changes
from fencepost.schema_registry.content import KINDS, PROTOBUF, Content, content_of, whole_number
from fencepost.schema_registry.errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    level_not_set,
    mode_not_set,
    schema_not_found,
    subject_not_found,
)
from fencepost.schema_registry.records import Version
from fencepost.schema_registry.state import LATEST, State
from fencepost.version import __version__

T = TypeVar("T")


class Text(NamedTuple):
    """An answer that is no JSON, but the text of a schema."""

    text: str


class Request(NamedTuple):
    """A request: what its path names, its parameters and its body."""

    names: Sequence[str] = ()
    query: Mapping[str, Sequence[str]] = {}
    body: Mapping[str, Any] = {}

    @property
    def subject(self) -> str:
        """The subject in the path. Confluent's name of the default context before it changes nothing."""
        return self.names[0].removeprefix(":.:")

    @property
    def scope(self) -> str | None:
        """The subject in the path, None for all."""
        return self.subject if self.names else None

    @property
    def version(self) -> int:
        """The version in the path, LATEST for its two names. Raises RegistryError."""
        name = self.names[1]
        if name in ("latest", "-1"):
            return LATEST
        try:
            return whole_number(int(name) if name.isdecimal() and name.isascii() else name, 1)
        except ValueError:
            raise invalid_version(name) from None

    @property
    def id(self) -> int:
        """The id in the path. Raises RegistryError."""
        if not (self.names[0].isdecimal() and self.names[0].isascii() and len(self.names[0]) <= 10):
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(self.names[0])

    @property
    def content(self) -> Content:
        """The schema in the body. Raises RegistryError."""
        try:
            return content_of(dict(self.body))
        except ValueError as error:
            raise invalid_schema(str(error)) from None

    def text(self, name: str) -> str:
        return self.query.get(name, ("",))[-1]

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def page(self, whole: Sequence[T]) -> Sequence[T]:
        """The part of a list that `offset` and `limit` ask for."""
        offset, limit = (int(text) if text.isdecimal() else -1 for text in map(self.text, ("offset", "limit")))
        found = whole[max(offset, 0) :]
        return found if limit < 0 else found[:limit]


def _formatted(content: Content, wanted: str) -> str:
    """The text in the format that the request names. Raises RegistryError for what nothing here can write."""
    if wanted in ("", "default") or (wanted == "serialized" and content.kind != PROTOBUF):
        return content.text
    try:
        if wanted == "serialized" and base64.b64decode(content.text, validate=True):
            return content.text
    except binascii.Error:
        pass
    raise invalid_schema(f"this schema was registered as text, and this registry does not write format={wanted}")


def _with_format(fields: dict[str, Any], content: Content, request: Request) -> dict[str, Any]:
    return {**fields, "schema": _formatted(content, request.text("format"))}


def _schema(state: State, request: Request) -> Any:
    content = state.content(request.id)
    found = _with_format(content.as_json(), content, request)
    return {**found, "maxId": state.max_id} if request.flag("fetchMaxId") else found


def _schema_text(state: State, request: Request) -> Text:
    return Text(_formatted(state.content(request.id), request.text("format")))


def _schema_of_guid(state: State, request: Request) -> Any:
    for one in state.all_versions():
        if one.content.guid == request.names[0]:
            return _with_format(one.content.as_json(), one.content, request)
    raise schema_not_found(request.names[0])


def _places(state: State, request: Request) -> list[Version]:
    wanted = request.text("subject")
    found = [one for one in state.places(request.id) if request.flag("deleted") or not one.deleted]
    return [one for one in found if wanted in ("", one.subject)]


def _subjects_of_id(state: State, request: Request) -> Any:
    return request.page(list(dict.fromkeys(one.subject for one in _places(state, request))))


def _versions_of_id(state: State, request: Request) -> Any:
    return request.page([{"subject": one.subject, "version": one.number} for one in _places(state, request)])


def _prefix(request: Request) -> str:
    return request.text("subjectPrefix").removeprefix(":*:").removeprefix(":.:")


def _schemas(state: State, request: Request) -> Any:
    deleted = request.flag("deleted")
    found: list[Version] = []
    for subject in state.subjects(_prefix(request), deleted=deleted):
        versions = state.versions(subject, deleted=deleted)
        found += versions[-1:] if request.flag("latestOnly") else versions
    return [one.as_json() for one in request.page(found)]


def _subjects(state: State, request: Request) -> Any:
    only = request.flag("deletedOnly")
    return request.page(state.subjects(_prefix(request), deleted=only or request.flag("deleted"), deleted_only=only))


def _versions(state: State, request: Request) -> Any:
    only = request.flag("deletedOnly")
    found = state.versions(request.subject, deleted=only or request.flag("deleted"))
    if not found:
        raise subject_not_found(request.subject)
    return request.page([one.number for one in found if one.deleted or not only])


def _version(state: State, request: Request) -> Any:
    found = state.version(request.subject, request.version, deleted=request.flag("deleted"))
    return _with_format(found.as_json(), found.content, request)


def _version_text(state: State, request: Request) -> Text:
    found = state.version(request.subject, request.version, deleted=request.flag("deleted"))
    return Text(_formatted(found.content, request.text("format")))


def _referenced_by(state: State, request: Request) -> Any:
    found = state.version(request.subject, request.version, deleted=True)
    referrers = state.referrers(found.subject, found.number, deleted=request.flag("deleted"))
    return request.page(list(dict.fromkeys(one.id for one in referrers)))


def _with_metadata(state: State, request: Request) -> Any:
    wanted = dict(zip(request.query.get("key", ()), request.query.get("value", ()), strict=False))
    found = state.versions(request.subject, deleted=request.flag("deleted"))
    if not found:
        raise subject_not_found(request.subject)
    for one in reversed(found):
        metadata = json.loads(one.content.metadata or "{}")
        properties = metadata.get("properties") if isinstance(metadata, dict) else None
        if wanted.items() <= (properties if isinstance(properties, dict) else {}).items():
            return _with_format(one.as_json(), one.content, request)
    raise schema_not_found()


def _look_up(state: State, request: Request) -> Any:
    subject = request.subject
    versions = state.versions(subject, deleted=request.flag("deleted"))
    if not versions:
        raise subject_not_found(subject)
    ids = state.ids_of(changes.parse(state, subject, request.content, request.flag("normalize")))
    for one in reversed(versions):
        if one.id in ids:
            return _with_format(one.as_json(), one.content, request)
    raise schema_not_found()


def _compatibility(state: State, request: Request) -> Any:
    return changes.compatibility(
        state,
        request.subject,
        request.content,
        request.version if len(request.names) > 1 else None,
        normalize=request.flag("normalize"),
        verbose=request.flag("verbose"),
    )


def _level(state: State, request: Request) -> Any:
    scope = request.scope
    found = state.levels.get(scope)
    if found is None and scope is not None and not request.flag("defaultToGlobal"):
        raise level_not_set(scope)
    return {**(found or state.levels.get(None, {})), "compatibilityLevel": state.level(scope or "")}


def _mode(state: State, request: Request) -> Any:
    scope = request.scope
    if scope is not None and scope not in state.modes and not request.flag("defaultToGlobal"):
        raise mode_not_set(scope)
    return {"mode": state.mode(scope or "")}


def _register(state: State, request: Request) -> changes.Decision:
    try:
        number = whole_number(request.body.get("id"), -1)
        version = whole_number(request.body.get("version"), -1, 0)
    except ValueError as error:
        raise invalid_schema(str(error)) from None
    asked = changes.Registration(request.content, number, max(version, 0), request.flag("normalize"))
    return changes.register(state, request.subject, asked)


def _delete_version(state: State, request: Request) -> changes.Decision:
    return changes.delete_version(state, request.subject, request.version, request.flag("permanent"))


def _delete_subject(state: State, request: Request) -> changes.Decision:
    return changes.delete_subject(state, request.subject, request.flag("permanent"))


def _set_level(state: State, request: Request) -> changes.Decision:
    return changes.set_level(state, request.scope, dict(request.body))


def _delete_level(state: State, request: Request) -> changes.Decision:
    return changes.delete_level(state, request.scope)


def _set_mode(state: State, request: Request) -> changes.Decision:
    return changes.set_mode(state, request.scope, request.body.get("mode"), request.flag("force"))


def _delete_mode(state: State, request: Request) -> changes.Decision:
    return changes.delete_mode(state, request.scope)


def _fixed(answer: Any, state: State, request: Request) -> Any:
    return answer


How = Literal["read", "compute", "change"]
"""Whether a route reads what it can at once, or takes its time in a thread, or decides a change."""


class Route(NamedTuple):
    """`*` in the path is a name. `answer` raises RegistryError."""

    method: str
    path: tuple[str, ...]
    how: How
    answer: Callable[[State, Request], Any]


def _route(method: str, path: str, how: How, answer: Callable[[State, Request], Any]) -> Route:
    return Route(method, tuple(path.strip("/").split("/")), how, answer)


def _of_all_and_one(method: str, path: str, how: How, answer: Callable[[State, Request], Any]) -> tuple[Route, Route]:
    return _route(method, path, how, answer), _route(method, f"{path}/*", how, answer)


ROUTES: Final = (
    _route("GET", "/", "read", partial(_fixed, {})),
    _route("GET", "/contexts", "read", partial(_fixed, ["."])),
    _route("GET", "/v1/metadata/id", "read", partial(_fixed, {"id": "", "scope": {"path": [], "clusters": {}}})),
    _route("GET", "/v1/metadata/version", "read", partial(_fixed, {"version": __version__, "commitId": ""})),
    _route("GET", "/schemas", "read", _schemas),
    _route("GET", "/schemas/types", "read", partial(_fixed, list(KINDS))),
    _route("GET", "/schemas/ids/*", "read", _schema),
    _route("GET", "/schemas/ids/*/schema", "read", _schema_text),
    _route("GET", "/schemas/ids/*/subjects", "read", _subjects_of_id),
    _route("GET", "/schemas/ids/*/versions", "read", _versions_of_id),
    _route("GET", "/schemas/guids/*", "read", _schema_of_guid),
    _route("GET", "/subjects", "read", _subjects),
    _route("POST", "/subjects/*", "compute", _look_up),
    _route("DELETE", "/subjects/*", "change", _delete_subject),
    _route("GET", "/subjects/*/metadata", "read", _with_metadata),
    _route("GET", "/subjects/*/versions", "read", _versions),
    _route("POST", "/subjects/*/versions", "change", _register),
    _route("GET", "/subjects/*/versions/*", "read", _version),
    _route("DELETE", "/subjects/*/versions/*", "change", _delete_version),
    _route("GET", "/subjects/*/versions/*/schema", "read", _version_text),
    _route("GET", "/subjects/*/versions/*/referencedby", "read", _referenced_by),
    _route("POST", "/compatibility/subjects/*/versions", "compute", _compatibility),
    _route("POST", "/compatibility/subjects/*/versions/*", "compute", _compatibility),
    *_of_all_and_one("GET", "/config", "read", _level),
    *_of_all_and_one("PUT", "/config", "change", _set_level),
    *_of_all_and_one("DELETE", "/config", "change", _delete_level),
    *_of_all_and_one("GET", "/mode", "read", _mode),
    *_of_all_and_one("PUT", "/mode", "change", _set_mode),
    *_of_all_and_one("DELETE", "/mode", "change", _delete_mode),
)


def find_route(method: str, segments: Sequence[str]) -> tuple[Route, list[str]]:
    """The route of a path, and the names in it. Raises RegistryError (404, 405)."""
    others = False
    for route in ROUTES:
        if len(route.path) == len(segments) and all(
            one in ("*", given) for one, given in zip(route.path, segments, strict=True)
        ):
            if route.method == method:
                return route, [given for one, given in zip(route.path, segments, strict=True) if one == "*"]
            others = True
    raise RegistryError(405, "HTTP 405 Method Not Allowed") if others else RegistryError(404, "HTTP 404 Not Found")
