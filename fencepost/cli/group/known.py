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
        await refuse_share_group(admin, group_id)
        raise KafkaError(f"group {group_id!r} does not exist", code=ErrorCode.GROUP_ID_NOT_FOUND)
    return found


async def refuse_share_group(admin: "Admin", group_id: str, command: str = "describe") -> None:
    """Raises KafkaError for a share group, with the `fencepost queue` command that takes it."""
    if await _is_share_group(admin, group_id):
        raise KafkaError(f"{group_id!r} is a share group: use `fencepost queue {command} {group_id}`")


async def _is_share_group(admin: "Admin", group_id: str) -> bool:
    """Whether there is a share group of this name; older brokers know none."""
    try:
        return group_id in await admin.describe_share_groups(group_id)
    except KafkaError:
        return False
