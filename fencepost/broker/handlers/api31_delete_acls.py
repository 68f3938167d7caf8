"""DeleteAcls (31): remove the ACLs that match filters. v1 has resource patterns (KIP-290); v3 the type USER."""

from collections.abc import Collection

import trio

from fencepost.broker.metadata.acl_requests import NO_AUTHORIZER, AclFilter, audit_text
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import log_changes
from fencepost.coordinator.metadata.acl_controller import ACL_CHANGES_MAX
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(node: Broker, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Remove the ACLs that match any of the filters, in one change; return them by filter."""
    filters = [AclFilter.of(one) for one in request.filters]
    if node.authorizer is None:
        disabled = Outcome(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[_result(disabled, ())] * len(filters))
    acls = list(set(node.metadata.image.acls.values()))
    chosen: set[Acl] = set()
    found: list[tuple[Outcome, list[Acl]]] = []
    for one in filters:
        matching = one.select(acls)
        problem = _problem(one, len(chosen) + sum(acl not in chosen for acl in matching))
        found.append((DONE, sorted(matching)) if problem is None else (problem, []))
        if problem is None:
            chosen.update(matching)
        await trio.lowlevel.checkpoint()  # many filters over many ACLs must not keep other requests waiting
    deleted = await node.metadata.delete_acls(chosen) if chosen else DONE
    if deleted.code is not ErrorCode.NONE:
        found = [(deleted, [])] * len(filters)
    else:
        await log_changes(context, "ACL_DELETED", map(audit_text, sorted(chosen)))
    return DeleteAclsResponse(filter_results=[_result(outcome, matching) for outcome, matching in found])


def _problem(one: AclFilter, count: int) -> Outcome | None:
    """Why a filter is refused, in the words of Kafka's AclControlManager; `count` are the ACLs chosen so far."""
    if not (one.resource_type and one.pattern_type):
        return Outcome(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if not (one.operation and one.permission):
        return Outcome(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    if count > ACL_CHANGES_MAX:
        text = f"Cannot remove more than {ACL_CHANGES_MAX} acls in a single delete operation."
        return Outcome(ErrorCode.INVALID_REQUEST, text)
    return None


def _result(outcome: Outcome, acls: Collection[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=outcome.code,
        error_message=outcome.message,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ],
    )
