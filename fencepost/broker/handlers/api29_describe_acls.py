"""DescribeAcls (29): the ACLs that match a filter. v1 has resource patterns (KIP-290); v3 the type USER."""

from fencepost.broker.metadata.acl_requests import AclFilter
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(node: Broker, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    wanted = AclFilter.of(request)
    if node.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    patterns: dict[tuple[int, str, int], set[Acl]] = {}
    for acl in wanted.select(node.metadata.image.acls.values()):
        patterns.setdefault(acl[:3], set()).add(acl)
    resources = [
        DescribeAclsResource(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[
                AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
                )
                for acl in sorted(acls)
            ],
        )
        for (resource_type, name, pattern_type), acls in sorted(patterns.items())
    ]
    return DescribeAclsResponse(error_message="", resources=resources)
