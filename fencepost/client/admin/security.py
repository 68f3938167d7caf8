"""Access rules, client quotas and SCRAM credentials."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fencepost.client.admin.requests import AdminRequests, failure, listed
from fencepost.client.admin.security_types import (
    ANY,
    DEFAULT,
    Acl,
    AclFilter,
    QuotaEntity,
    QuotaName,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    acl_of,
)
from fencepost.client.errors import KafkaError
from fencepost.protocol.admin_enums import named
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api29_describe_acls import DescribeAclsRequest
from fencepost.protocol.messages.api30_create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.api31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.api48_describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from fencepost.protocol.messages.api49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from fencepost.protocol.messages.api50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from fencepost.protocol.messages.api51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.scram import SALT_BYTES, salted_password

EXACT, IS_DEFAULT, ANY_NAME = 0, 1, 2
_ENTITY_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
_NAMES: Final = {ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512"}
EVERYTHING: Final = AclFilter()
EVERYBODY: Final = QuotaEntity()


class SecurityAdmin:
    """The part of the admin client for access rules, quotas and SCRAM credentials."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def describe_acls(self, acl_filter: AclFilter = EVERYTHING) -> list[Acl]:
        """The access rules that match, sorted. Raises KafkaError (SECURITY_DISABLED without an authorizer)."""
        request = DescribeAclsRequest(**_filter_fields(acl_filter))
        response = await self._rpc.response("", self._rpc.any_broker, request, "describing access rules")
        return sorted(acl_of(resource, one) for resource in response.resources for one in resource.acls)

    async def create_acls(self, rules: Acl | Iterable[Acl]) -> None:
        """Add access rules; existing rules stay. Raises ItemsFailedError by rule (SECURITY_DISABLED, ...)."""

        async def ask(node: int | None, some: list[Acl]) -> dict[Acl, KafkaError | None]:
            creations = [
                AclCreation(
                    resource_type=rule.resource_type,
                    resource_name=rule.name,
                    resource_pattern_type=rule.pattern_type,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
                for rule in some
            ]
            response = await self._rpc.ask(node, CreateAclsRequest(creations=creations))
            return {
                rule: failure(one, "creating an access rule", ApiKey.CREATE_ACLS, node)
                for rule, one in zip(some, response.results, strict=False)
            }

        await self._rpc.each(listed(rules, Acl), self._rpc.controller, ask, "creating access rules")

    async def delete_acls(self, filters: AclFilter | Iterable[AclFilter]) -> dict[AclFilter, list[Acl]]:
        """Delete the access rules that match; returns them by filter. `AclFilter(*acl)` matches one rule.

        Raises ItemsFailedError by filter.
        """

        async def ask(node: int | None, some: list[AclFilter]) -> dict[AclFilter, list[Acl] | KafkaError]:
            filters = [DeleteAclsFilter(**_filter_fields(one)) for one in some]
            response = await self._rpc.ask(node, DeleteAclsRequest(filters=filters))
            return {asked: _deleted(result, node) for asked, result in zip(some, response.filter_results, strict=False)}

        return await self._rpc.each(listed(filters, AclFilter), self._rpc.controller, ask, "deleting access rules")

    async def describe_client_quotas(
        self, entity: QuotaEntity = EVERYBODY, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by entity (Kafka 2.6): {"producer_byte_rate": bytes per second, ...}.

        The result has each entity that matches all parts of `entity`; a part is a name, DEFAULT or ANY. `strict` leaves
        out entities with further parts. Raises KafkaError.
        """
        components = [
            ComponentData(entity_type=kind, match_type=_match(name), match=name if isinstance(name, str) else None)
            for kind, name in _parts(entity)
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        response = await self._rpc.response("", self._rpc.any_broker, request, "describing quotas")
        return {_entity(entry.entity): {one.key: one.value for one in entry.values} for entry in response.entries or ()}

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set quotas; None removes one (Kafka 2.6). Raises ItemsFailedError by entity (INVALID_REQUEST, ...).

        Kafka's quotas are producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage,
        controller_mutation_rate, and for addresses connection_creation_rate.
        """

        async def ask(node: int | None, some: list[QuotaEntity]) -> dict[QuotaEntity, KafkaError | None]:
            entries = [
                EntryData(
                    entity=[
                        EntityData(entity_type=kind, entity_name=name if isinstance(name, str) else None)
                        for kind, name in _parts(entity)
                    ],
                    ops=[
                        OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in some
            ]
            request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
            response = await self._rpc.ask(node, request)
            return {
                _entity(one.entity): failure(one, "altering a quota", ApiKey.ALTER_CLIENT_QUOTAS, node)
                for one in response.entries
            }

        await self._rpc.each(changes, self._rpc.controller, ask, "altering quotas")

    async def describe_user_scram_credentials(
        self, users: str | Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """The SCRAM credentials of these users or of all (Kafka 2.7), by user.

        Raises ItemsFailedError by user (RESOURCE_NOT_FOUND for a user without credentials), KafkaError for the whole.
        """
        what = "describing SCRAM users"

        async def ask(node: int | None, some: list[str] | None) -> dict[str, tuple[ScramCredential, ...] | KafkaError]:
            request = DescribeUserScramCredentialsRequest(
                users=None if some is None else [UserName(name=name) for name in some]
            )
            response = await self._rpc.ask(node, request, what)
            key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
            return {
                one.user: failure(one, f"describing user {one.user!r}", key, node)
                or tuple(
                    ScramCredential(named(ScramMechanism, i.mechanism), i.iterations) for i in one.credential_infos
                )
                for one in response.results
            }

        if users is not None:
            return await self._rpc.each(listed(users, str), self._rpc.controller, ask, what)

        async def ask_all(node: int | None) -> dict[str, tuple[ScramCredential, ...] | KafkaError]:
            return await ask(node, None)

        responses = await self._rpc.one("", self._rpc.controller, ask_all, what)
        return {user: one for user, one in responses.items() if not isinstance(one, KafkaError)}

    async def alter_user_scram_credentials(
        self,
        *,
        upsert: ScramUpsertion | Iterable[ScramUpsertion] = (),
        delete: ScramDeletion | Iterable[ScramDeletion] = (),
    ) -> None:
        """Set and delete SCRAM credentials of users (Kafka 2.7). Raises ItemsFailedError by user.

        RESOURCE_NOT_FOUND: a credential to delete does not exist. UNACCEPTABLE_CREDENTIAL: Kafka accepts 4096 to 16384
        iterations. DUPLICATE_RESOURCE: a user is named twice; Kafka changes one mechanism at a time.
        """
        upsertions, deletions = listed(upsert, ScramUpsertion), listed(delete, ScramDeletion)
        salted = [_salted(one) for one in upsertions]

        async def ask(node: int | None, some: list[str]) -> dict[str, KafkaError | None]:
            request = AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=one.user, mechanism=one.mechanism)
                    for one in deletions
                    if one.user in some
                ],
                upsertions=[one for one in salted if one.name in some],
            )
            response = await self._rpc.ask(node, request)
            return {
                one.user: failure(one, f"altering user {one.user!r}", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, node)
                for one in response.results
            }

        users = [*(one.user for one in upsertions), *(one.user for one in deletions)]
        await self._rpc.each(users, self._rpc.controller, ask, "altering SCRAM users")


def _filter_fields(which: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": which.resource_type,
        "resource_name_filter": which.name,
        "pattern_type_filter": which.pattern_type,
        "principal_filter": which.principal,
        "host_filter": which.host,
        "operation": which.operation,
        "permission_type": which.permission,
    }


def _deleted(result: Any, node: int | None) -> list[Acl] | KafkaError:
    for one in (result, *result.matching_acls):
        error = failure(one, "deleting access rules", ApiKey.DELETE_ACLS, node)
        if error is not None:
            return error
    return sorted(acl_of(one, one) for one in result.matching_acls)


def _parts(entity: QuotaEntity) -> list[tuple[str, str | QuotaName]]:
    """The parts that an entity has, under Kafka's names."""
    return [
        (_ENTITY_TYPES[field], name) for field, name in zip(entity._fields, entity, strict=True) if name is not None
    ]


def _match(name: str | QuotaName) -> int:
    return ANY_NAME if name is ANY else IS_DEFAULT if name is DEFAULT else EXACT


def _entity(parts: Any) -> QuotaEntity:
    fields = {kind: field for field, kind in _ENTITY_TYPES.items()}
    given = {fields[part.entity_type]: part.entity_name for part in parts if part.entity_type in fields}
    return QuotaEntity(**{field: DEFAULT if name is None else name for field, name in given.items()})


def _salted(one: ScramUpsertion) -> Any:
    """What the client sends instead of a password: RFC 5802's SaltedPassword, from which the broker makes its keys."""
    salt = secrets.token_bytes(SALT_BYTES) if one.salt is None else one.salt
    password = one.password.encode() if isinstance(one.password, str) else one.password
    digest = salted_password(_NAMES[one.mechanism], password, salt, one.iterations)
    return ScramCredentialUpsertion(
        name=one.user, mechanism=one.mechanism, iterations=one.iterations, salt=salt, salted_password=digest
    )
