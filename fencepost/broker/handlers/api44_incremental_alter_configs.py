"""IncrementalAlterConfigs (44): set, delete, append and subtract, one at a time (KIP-339). All versions alike."""

from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Edit each resource's configurations; within one resource all edits or none."""
    changes = [
        ConfigEdits(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigEdit(entry.name, entry.config_operation, entry.value) for entry in resource.configs),
        )
        for resource in request.resources
    ]
    outcomes = await node.metadata.alter_configs(changes, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=change.resource_type,
                resource_name=change.resource_name,
            )
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
    )
