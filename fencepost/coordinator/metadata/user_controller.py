"""Decides on SCRAM credentials: what AlterUserScramCredentials changes (KIP-554). Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.features import SCRAM_SINCE
from fencepost.coordinator.metadata.image import METADATA_VERSION, MetadataImage, ScramUser
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from fencepost.protocol.scram import (
    MAX_ITERATIONS,
    MECHANISM_NUMBERS,
    MIN_ITERATIONS,
    client_key_of,
    server_key_of,
    stored_key_of,
)

_MECHANISMS = {number: name for name, number in MECHANISM_NUMBERS.items()}
_TWICE = Outcome(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


class CredentialDeletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class CredentialUpsertion(NamedTuple):
    """A credential to set. The client sends RFC 5802's SaltedPassword; the broker keeps only keys derived from it."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"CredentialUpsertion(user={self.user!r}, mechanism={self.mechanism}, ...)"


CredentialChange = CredentialDeletion | CredentialUpsertion
ChangeT = TypeVar("ChangeT", CredentialDeletion, CredentialUpsertion)
Users = Decision[MetadataRecord, dict[str, Outcome], None]


def alter_credentials(
    image: MetadataImage, deletions: Sequence[CredentialDeletion], upsertions: Sequence[CredentialUpsertion]
) -> Users:
    """Change credentials, one outcome for each user; the rules of Kafka's ScramControlManager.

    A user who is named twice is not changed, even for two mechanisms.
    """
    outcomes: dict[str, Outcome] = {}
    accepted: dict[str, CredentialChange] = {}
    _check(deletions, outcomes, accepted, lambda change: _deletion_problem(image, change))
    _check(upsertions, outcomes, accepted, lambda change: _upsertion_problem(image, change))
    return Decision({**dict.fromkeys(accepted, DONE), **outcomes}, tuple(map(_record, accepted.values())))


def _check(
    changes: Iterable[ChangeT],
    outcomes: dict[str, Outcome],
    accepted: dict[str, CredentialChange],
    problem_of: Callable[[ChangeT], Outcome | None],
) -> None:
    for change in changes:
        if change.user in outcomes:
            continue
        problem = _TWICE if accepted.pop(change.user, None) is not None else problem_of(change)
        if problem is None:
            accepted[change.user] = change
        else:
            outcomes[change.user] = problem


def _problem(image: MetadataImage, change: CredentialChange) -> Outcome | None:
    if image.features.get(METADATA_VERSION, 0) < SCRAM_SINCE:
        return Outcome(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not change.user:
        return Outcome(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        return Outcome(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _deletion_problem(image: MetadataImage, change: CredentialDeletion) -> Outcome | None:
    problem = _problem(image, change)
    if problem is None and ScramUser(change.user, change.mechanism) not in image.scram:
        return Outcome(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return problem


def _upsertion_problem(image: MetadataImage, change: CredentialUpsertion) -> Outcome | None:
    problem = _problem(image, change)
    if problem is None and change.iterations < MIN_ITERATIONS:
        return Outcome(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if problem is None and change.iterations > MAX_ITERATIONS:
        return Outcome(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return problem


def _record(change: CredentialChange) -> MetadataRecord:
    if isinstance(change, CredentialDeletion):
        return RemoveUserScramCredentialRecord(change.user, change.mechanism)
    mechanism, salted = _MECHANISMS[change.mechanism], change.salted_password
    stored_key = stored_key_of(mechanism, client_key_of(mechanism, salted))
    server_key = server_key_of(mechanism, salted)
    return UserScramCredentialRecord(
        change.user, change.mechanism, change.salt, stored_key, server_key, change.iterations
    )
