"""What a request changes: a rule for each, from the state to the records to append. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.schema_registry.compatibility import LEVELS, checked, problems
from fencepost.schema_registry.content import AVRO, Content, normalized
from fencepost.schema_registry.errors import (
    INVALID_SCHEMA,
    RegistryError,
    incompatible,
    invalid_level,
    invalid_mode,
    invalid_schema,
    invalid_subject,
    level_not_checked,
    not_permitted,
    not_soft_deleted,
    reference_exists,
    soft_deleted,
    subject_not_found,
)
from fencepost.schema_registry.records import (
    IDS_SUBJECT,
    Record,
    Version,
    deleted_until,
    schema_key,
    subject_record,
)
from fencepost.schema_registry.state import CONTEXT_PREFIX, IMPORT, LATEST, MODES, READONLY, READWRITE, State


class Decision(NamedTuple):
    """What to append, and what to answer then."""

    records: Sequence[Record]
    answer: Any


Change = Callable[[State], Decision]
"""Raises RegistryError."""


class Registration(NamedTuple):
    """A schema to register. `id` -1 and `version` 0 take the next ones; an id is for subjects in mode IMPORT."""

    content: Content
    id: int = -1
    version: int = 0
    normalize: bool = False


def parse(state: State, subject: str, content: Content, normalize: bool = False) -> Content:
    """The schema as it is kept. Raises RegistryError if it is none, or a reference leads nowhere."""
    latest = {
        one: one._replace(version=state.version(one.subject, LATEST).number)
        for one in content.references
        if one.version == LATEST
    }
    named = tuple(latest.get(one, one) for one in content.references)
    found = checked(content._replace(references=named), state.referred)
    return normalized(found) if normalize or state.normalizes(subject) else found


def register(state: State, subject: str, asked: Registration) -> Decision:
    """Register a schema: a version of the subject, with the id that the schema has in other subjects already."""
    _check_subject(subject)
    mode = _check_mode(state, subject, READWRITE if asked.id < 0 else IMPORT)
    content = parse(state, subject, asked.content, asked.normalize)
    ids = state.ids_of(content)
    if asked.id >= 0 and asked.id not in ids and state.find_content(asked.id) is not None:
        raise not_permitted(f"Overwrite new schema with id {asked.id} is not permitted.")
    wanted = [asked.id] if asked.id >= 0 else ids
    every = state.versions(subject, deleted=True)
    living = [one for one in every if not one.deleted]
    if not asked.version:
        for one in reversed(living):
            if one.id in wanted:
                return Decision([], _registered(one))
    if mode != IMPORT:
        earlier = [(one.number, one.content) for one in living]
        reasons = problems(state.level(subject), subject, content, earlier, state.referred)
        if reasons:
            raise incompatible(subject, reasons)
    number = (every[-1].number if every else 0) + 1
    if asked.version:
        if asked.version != number and mode != IMPORT:
            raise invalid_schema("Version is not one more than previous version")
        number = asked.version
    former = next((one for one in every if one.number == number), None)
    keys = (schema_key(subject, number),) if former is None else former.keys
    made = Version(subject, number, wanted[0] if wanted else state.next_id, content, False, keys)
    return Decision([made.record], _registered(made))


def _registered(version: Version) -> dict[str, Any]:
    return {"id": version.id, "version": version.number, "guid": version.content.guid, **version.content.as_json()}


def compatibility(
    state: State, subject: str, content: Content, number: int | None, *, normalize: bool, verbose: bool
) -> dict[str, Any]:
    """Whether a schema could be registered: after this version, or (None) after those that the level asks for."""
    earlier = state.versions(subject)
    if number is not None and (earlier or number != LATEST):
        earlier = [state.version(subject, number)]
    pairs = [(one.number, one.content) for one in earlier]
    try:
        new = parse(state, subject, content, normalize)
        reasons = problems(state.level(subject), subject, new, pairs, state.referred)
    except RegistryError as error:
        if error.code != INVALID_SCHEMA or not verbose:
            raise
        reasons = [str(error)]
    return {"is_compatible": not reasons} | ({"messages": reasons} if verbose else {})


def delete_version(state: State, subject: str, number: int, permanent: bool) -> Decision:
    """Delete one version: softly, or for good what is soft-deleted."""
    _check_mode(state, subject)
    every = state.versions(subject, deleted=True)
    if not every:
        raise subject_not_found(subject)
    one = state.version(subject, number, deleted=permanent or not state.versions(subject) or number > 0)
    if state.referrers(subject, one.number, deleted=permanent):
        raise reference_exists(subject, one.number)
    if not permanent:
        if one.deleted:
            raise soft_deleted(subject, one.number)
        return Decision([one._replace(deleted=True).record], one.number)
    if not one.deleted:
        raise not_soft_deleted(subject, one.number)
    return Decision([*_forget(state, [one]), *(_unset(state, subject) if len(every) == 1 else [])], one.number)


def delete_subject(state: State, subject: str, permanent: bool) -> Decision:
    """Delete all versions of a subject: softly, or for good if all are soft-deleted."""
    _check_mode(state, subject)
    every = state.versions(subject, deleted=True)
    living = [one for one in every if not one.deleted]
    if not every:
        raise subject_not_found(subject)
    if not living and not permanent:
        raise soft_deleted(subject)
    gone = every if permanent else living
    for one in gone:
        if any(other.subject != subject for other in state.referrers(subject, one.number, deleted=permanent)):
            raise reference_exists(subject, one.number)
    numbers = [one.number for one in gone]
    if not permanent:
        return Decision([deleted_until(subject, numbers[-1])], numbers)
    if living:
        raise not_soft_deleted(subject)
    return Decision([*_forget(state, gone), *_unset(state, subject)], numbers)


def _forget(state: State, gone: Sequence[Version]) -> list[Record]:
    """Delete versions for good. A record keeps the highest id if no other record has it: it is never given again."""
    left = max((one.id for one in state.all_versions() if one not in gone), default=0)
    kept = [deleted_until(IDS_SUBJECT, state.max_id)] if left < state.max_id else []
    return kept + [record for one in reversed(gone) for record in one.deletions]


def _unset(state: State, subject: str) -> list[Record]:
    """Remove level and mode of a subject that is no more."""
    levels = [subject_record("CONFIG", subject, None)] if subject in state.levels else []
    return levels + ([subject_record("MODE", subject, None)] if subject in state.modes else [])


def set_level(state: State, subject: str | None, fields: dict[str, Any]) -> Decision:
    """Set the level of compatibility, and whether schemas are normalized, of a subject or (None) of all."""
    if subject is not None:
        _check_subject(subject)
    _check_mode(state, subject)
    others = sorted(set(fields) - {"compatibility", "normalize"})
    if others:
        raise not_permitted(f"This registry knows of a configuration compatibility and normalize, not {others}.")
    level, normalize = fields.get("compatibility"), fields.get("normalize")
    if not fields or not isinstance(level, str | None) or not isinstance(normalize, bool | None):
        raise invalid_level()
    if level is not None:
        level = level.upper()
        if level not in LEVELS:
            raise invalid_level()
        for newest in state.versions(subject)[-1:] if subject is not None and level != "NONE" else []:
            if newest.content.kind != AVRO:
                raise level_not_checked(newest.subject, newest.content.kind, level)
    given = {name: value for name, value in (("compatibility", level), ("normalize", normalize)) if value is not None}
    kept = {"compatibilityLevel" if name == "compatibility" else name: value for name, value in given.items()}
    return Decision([subject_record("CONFIG", subject, {**state.levels.get(subject, {}), **kept})], given)


def delete_level(state: State, subject: str | None) -> Decision:
    """Return to the level of all subjects, or (None) to the default one; the answer is the former level."""
    _check_mode(state, subject)
    former = state.levels.get(subject)
    if former is None and subject is not None:
        raise subject_not_found(subject)
    records = [] if former is None else [subject_record("CONFIG", subject, None)]
    return Decision(records, former or {"compatibilityLevel": state.level("")})


def set_mode(state: State, subject: str | None, mode: Any, force: bool) -> Decision:
    """Set the mode of a subject or (None) of all. IMPORT is for subjects without a version, unless `force`."""
    mode = mode.upper() if isinstance(mode, str) else None
    if mode not in MODES:
        raise invalid_mode()
    if subject is not None:
        _check_subject(subject)
    gone: list[Version] = []
    if mode == IMPORT and state.mode(subject or "") != IMPORT and not force:
        gone = [one for one in state.all_versions() if subject in (None, one.subject)]
        if any(not one.deleted for one in gone):
            raise not_permitted("Cannot import since found existing subjects")
        for one in gone:
            if any(other not in gone for other in state.referrers(one.subject, one.number, deleted=True)):
                raise reference_exists(one.subject, one.number)
    forgotten = _forget(state, gone) if gone else []
    return Decision([*forgotten, subject_record("MODE", subject, {"mode": mode})], {"mode": mode})


def delete_mode(state: State, subject: str | None) -> Decision:
    """Return to the mode of all subjects, or (None) to READWRITE; the answer is the former mode."""
    former = state.modes.get(subject)
    if former is None and subject is not None:
        raise subject_not_found(subject)
    return Decision([] if former is None else [subject_record("MODE", subject, None)], {"mode": former or READWRITE})


def _check_subject(subject: str) -> None:
    if not subject.strip() or subject == IDS_SUBJECT or subject.startswith(CONTEXT_PREFIX) or not subject.isprintable():
        raise invalid_subject(subject)


def _check_mode(state: State, subject: str | None, wanted: str | None = None) -> str:
    """The subject's mode. Raises RegistryError if it is READONLY, or not the one that is `wanted`."""
    mode = state.mode(subject or "")
    if mode == READONLY or (wanted is not None and mode != wanted):
        needs = {READWRITE: "not in read-write mode", IMPORT: "not in import mode"}
        what = needs[wanted] if wanted is not None and mode != READONLY else "in read-only mode"
        raise not_permitted(f"Subject {subject or '(all)'} in context . is {what}")
    return mode
