"""IncrementalAlterConfigs (44): set, delete, append and subtract single settings (KIP-339). Versions are equal."""

import logging
from collections import Counter

from fencepost.broker.config.broker_config import is_without_effect
from fencepost.broker.config.loggers import alter_loggers
from fencepost.broker.handlers.config_changes import refusal
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, Outcome
from fencepost.coordinator.metadata.config_controller import TWICE
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

logger = logging.getLogger(__name__)


async def alter(node: Broker, changes: list[ConfigEdits], validate_only: bool) -> list[Outcome]:
    """One outcome for each change. This process changes levels of loggers; the controller changes all else."""
    times = Counter((change.resource_type, change.resource_name) for change in changes)
    rest = [change for change in changes if change.resource_type != ConfigResourceType.BROKER_LOGGER]
    decided = iter(await node.metadata.alter_configs(rest, validate_only) if rest else ())
    outcomes = []
    for change in changes:
        if change.resource_type == ConfigResourceType.BROKER_LOGGER:
            is_once = times[change.resource_type, change.resource_name] == 1
            outcomes.append(alter_loggers(change, node.config.node_id, validate_only) if is_once else TWICE)
            continue
        outcomes.append(next(decided))
        if (
            outcomes[-1].code is ErrorCode.NONE
            and change.resource_type == ConfigResourceType.BROKER
            and not validate_only
        ):
            _warn_without_effect(change)
    return outcomes


def _warn_without_effect(change: ConfigEdits) -> None:
    for edit in change.edits:
        if is_without_effect(edit.name):
            logger.warning("setting has no effect here name=%s value=%s", edit.name, edit.value)


async def handle(
    node: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Edit each resource's settings; within one resource all edits or none."""
    changes = [
        ConfigEdits(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigEdit(entry.name, entry.config_operation, entry.value) for entry in resource.configs),
        )
        for resource in request.resources
    ]
    refused = [refusal(node, context, change) for change in changes]
    allowed = [change for change, problem in zip(changes, refused, strict=True) if problem is None]
    decided = iter(await alter(node, allowed, request.validate_only))
    outcomes = [next(decided) if problem is None else problem for problem in refused]
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
