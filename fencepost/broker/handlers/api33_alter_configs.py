"""AlterConfigs (33): the older API, which removes every setting that the request does not name. Versions are equal."""

from fencepost.broker.handlers.config_changes import refusal
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits
from fencepost.protocol.admin_enums import ConfigOperation
from fencepost.protocol.messages.api33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(node: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    changes = [
        ConfigEdits(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigEdit(entry.name, ConfigOperation.SET, entry.value) for entry in resource.configs),
            replace_all=True,
        )
        for resource in request.resources
    ]
    refused = [refusal(node, context, change) for change in changes]
    allowed = [change for change, problem in zip(changes, refused, strict=True) if problem is None]
    decided = iter(await node.metadata.alter_configs(allowed, request.validate_only))
    outcomes = [next(decided) if problem is None else problem for problem in refused]
    return AlterConfigsResponse(
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
