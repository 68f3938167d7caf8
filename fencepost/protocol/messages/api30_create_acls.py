"""CreateAcls (30): add access rules.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class AclCreation(Value):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(RequestValue["CreateAclsResponse"], api=ApiKey.CREATE_ACLS):
    creations: list[AclCreation] = []


class AclCreationResult(Value):
    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(ResponseValue, api=ApiKey.CREATE_ACLS):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []
