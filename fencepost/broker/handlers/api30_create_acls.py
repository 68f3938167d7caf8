"""CreateAcls (30): add ACLs. v1 has resource patterns (KIP-290); v3 the type USER."""

from fencepost.broker.metadata.acl_requests import NO_AUTHORIZER, audit_text, refuse_unknown
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import log_changes
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api30_create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(node: Broker, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add the valid ACLs of the request; each that exists already is a success without a change."""
    for one in request.creations:
        refuse_unknown(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
    if node.authorizer is None:
        outcomes = [Outcome(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)] * len(request.creations)
    else:
        acls = [
            Acl(
                one.resource_type,
                one.resource_name,
                one.resource_pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for one in request.creations
        ]
        outcomes = await node.metadata.create_acls(acls)
        created = (acl for acl, outcome in zip(acls, outcomes, strict=True) if outcome.code is ErrorCode.NONE)
        await log_changes(context, "ACL_CREATED", map(audit_text, created))
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message or "") for code, message in outcomes]
    )
