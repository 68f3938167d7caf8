"""Groups that exist."""

from typing import TYPE_CHECKING, Any

from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin


async def known(admin: "Admin", group_id: str) -> Any:
    """The description of the group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
    found = (await admin.describe_groups(group_id))[group_id]
    if found.state == "Dead":
        raise KafkaError(f"group {group_id!r} does not exist", code=ErrorCode.GROUP_ID_NOT_FOUND)
    return found
