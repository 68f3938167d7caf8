"""The registry's refusals: Confluent's error codes and texts."""

from typing import Final

INVALID_SCHEMA: Final = 42201
TOO_LARGE: Final = 42209


class RegistryError(Exception):
    """A request that is refused. `code` is Confluent's; its first three digits are the status of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(which: object = "") -> RegistryError:
    return RegistryError(40403, f"Schema {which} not found" if which != "" else "Schema not found")


def soft_deleted(subject: str, version: int | None = None) -> RegistryError:
    """Of a subject, or of one of its versions: the first deletion was done already."""
    what = f"Subject '{subject}'" + ("" if version is None else f" Version {version}")
    return RegistryError(
        40404 if version is None else 40406, f"{what} was soft deleted. Set permanent=true to delete permanently"
    )


def not_soft_deleted(subject: str, version: int | None = None) -> RegistryError:
    what = f"Subject '{subject}'" + ("" if version is None else f" Version {version}")
    return RegistryError(
        40405 if version is None else 40407, f"{what} was not deleted first before being permanently deleted"
    )


def level_not_set(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_set(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    return RegistryError(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details:'
        f" [{', '.join(reasons)}]",
    )


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the"
        ' string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive,"
        " forward_transitive, and full_transitive",
    )


def level_not_checked(subject: str, kind: str, level: str) -> RegistryError:
    """An honest refusal: no library checks these schemas here."""
    return RegistryError(
        42203,
        f"This registry checks the compatibility of AVRO schemas only, so it cannot accept a change of a {kind} schema"
        f" at the level {level}. Set the level NONE for the subject to change its schema without a check:"
        f' PUT /config/{subject} {{"compatibility": "NONE"}}',
    )


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY and IMPORT.")


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(42205, reason)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not valid.")
