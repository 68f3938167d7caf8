"""ListConfigResources (74): the resources that have settings (KIP-1142). v0 lists client metrics only."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

KINDS_SINCE = 1
LISTED = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
"""In the order of Kafka's response."""


def handle(node: Broker, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    """Every topic and broker; the groups and client metrics subscriptions with at least one setting."""
    wanted = request.resource_types if context.api_version >= KINDS_SINCE else [ConfigResourceType.CLIENT_METRICS]
    if not set(wanted) <= set(LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=int(kind))
            for kind in LISTED
            if not wanted or kind in wanted
            for name in _names(kind, node.metadata.image, str(node.config.node_id))
        ]
    )


def _names(kind: int, image: MetadataImage, node_id: str) -> list[str]:
    if kind == ConfigResourceType.TOPIC:
        return list(image.topics_by_name)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [node_id]
    return [resource.name for resource, entries in image.configs.items() if resource.type == kind and entries]
