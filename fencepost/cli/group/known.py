"""Groups that exist."""

from typing import TYPE_CHECKING, Any

from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin


async def known(admin: "Admin", group_id: str) -> Any:
    """The group, described. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
    told = await admin.describe_group(group_id)
    if told.state == "Dead":
        raise KafkaError(f"there is no group {group_id!r}", code=ErrorCode.GROUP_ID_NOT_FOUND)
    return told
