"""Settings of topics, brokers and groups: describe them with their sources, and change single settings."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.requests import AdminRequests, ToBroker, failure, is_unsupported, listed
from fencepost.client.admin.topics import NO_TOPIC
from fencepost.client.admin.types import ConfigEntry, ConfigResource, ConfigSynonym
from fencepost.client.errors import KafkaError
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType, ConfigSource
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.api33_alter_configs import AlterableConfig as WholeConfig
from fencepost.protocol.messages.api33_alter_configs import AlterConfigsRequest
from fencepost.protocol.messages.api33_alter_configs import AlterConfigsResource as WholeResource
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.api74_list_config_resources import ListConfigResourcesRequest

KINDS: Final = {int(kind): kind.name.lower() for kind in ConfigResourceType}
_NUMBERS: Final = {name: number for number, name in KINDS.items()}
_DOCUMENTATION_SINCE, _GROUPS_SINCE = 3, 4
_OWN: Final[dict[int, ConfigSource]] = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}
Changes = list[tuple[str, int, str | None]]


class ConfigAdmin:
    """The part of the admin client for settings. `broker` is an id, or "" for the settings that all brokers share."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def describe_configs(
        self,
        *,
        topic: str | None = None,
        broker: int | str | None = None,
        group: str | None = None,
        documentation: bool = False,
    ) -> dict[str, ConfigEntry]:
        """All settings of one topic, one broker or one group (Kafka 4.0), by name.

        `documentation` adds what each setting means (Kafka 2.6). Raises KafkaError.
        """
        resource = _resource(topic, broker, group)
        try:
            return (await self.describe_resources([resource], documentation=documentation))[resource]
        except ItemsFailedError as several:
            raise several.errors[resource] from None

    async def describe_resources(
        self, resources: Collection[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """As `describe_configs` for several, with one request to each broker. Raises ItemsFailedError by resource."""

        async def ask(
            node: int | None, some: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=_NUMBERS[one.kind], resource_name=one.name, configuration_keys=None
                    )
                    for one in some
                ],
                include_synonyms=True,
                include_documentation=documentation,
            )
            response = await self._rpc.ask(node, request, at_least=_DOCUMENTATION_SINCE if documentation else 1)
            found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for one in response.results:
                what = f"describing settings of {one.resource_name!r}"
                error = failure(one, what, ApiKey.DESCRIBE_CONFIGS, node, final=NO_TOPIC)
                entries = {entry.name: _entry(entry) for entry in one.configs}
                found[ConfigResource(KINDS.get(one.resource_type, ""), one.resource_name)] = error or entries
            return found

        return await self._rpc.each(resources, _ToResource(self._rpc.cluster), ask, "describing settings")

    async def incremental_alter_configs(
        self,
        changes: Mapping[str, str | None] | None = None,
        *,
        topic: str | None = None,
        broker: int | str | None = None,
        group: str | None = None,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change settings of one topic, broker or group; None removes a setting. Other settings stay.

        `append` and `subtract` change settings that are lists. Before Kafka 2.3, the client reads all settings and
        writes them back with the changes, so changes of another client at the same time get lost. Raises KafkaError
        (INVALID_CONFIG, ...).
        """
        resource = _resource(topic, broker, group)
        kind, name = _NUMBERS[resource.kind], resource.name
        steps: Changes = [
            (key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
            for key, value in (changes or {}).items()
        ]
        steps += [(key, ConfigOperation.APPEND, value) for key, value in (append or {}).items()]
        steps += [(key, ConfigOperation.SUBTRACT, value) for key, value in (subtract or {}).items()]
        what = f"changing settings of {name!r}"
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterableConfig(name=key, config_operation=way, value=value) for key, way, value in steps],
                )
            ],
            validate_only=validate_only,
        )

        async def ask(node: int | None) -> KafkaError | None:
            try:
                response = await self._rpc.ask(node, request)
            except KafkaError as error:
                if not is_unsupported(error) or kind not in _OWN:
                    raise
                return await self._replace(node, kind, name, steps, validate_only)
            one = response.responses[0]
            return failure(one, what, ApiKey.INCREMENTAL_ALTER_CONFIGS, node, final=NO_TOPIC)

        await self._rpc.one(resource, _ToResource(self._rpc.cluster), ask, what)

    async def _replace(
        self, node: int | None, kind: int, name: str, steps: Changes, validate_only: bool
    ) -> KafkaError | None:
        """The same for brokers before KIP-339: all settings of the resource itself, with the changes, as a whole."""
        resource = ConfigResource(KINDS[kind], name)
        there = (await self.describe_resources([resource]))[resource]
        own = {key: entry.value for key, entry in there.items() if entry.source == _OWN[kind] and not entry.sensitive}
        for key, way, value in steps:
            if way == ConfigOperation.DELETE:
                own.pop(key, None)
            elif way == ConfigOperation.SET:
                own[key] = value
            else:
                before = there[key].value if key in there else None
                listed = [part for part in (before or "").split(",") if part and part != value]
                own[key] = ",".join([*listed, value or ""] if way == ConfigOperation.APPEND else listed)
        entries = [WholeConfig(name=key, value=value) for key, value in own.items()]
        request = AlterConfigsRequest(
            resources=[WholeResource(resource_type=kind, resource_name=name, configs=entries)],
            validate_only=validate_only,
        )
        one = (await self._rpc.ask(node, request)).responses[0]
        what = f"changing settings of {name!r}"
        return failure(one, what, ApiKey.ALTER_CONFIGS, node, final=NO_TOPIC)

    async def list_config_resources(self, kinds: str | Iterable[str] = ()) -> list[ConfigResource]:
        """The resources that have settings of their own (Kafka 4.1), sorted; `kinds` selects some of them.

        Kinds are "topic", "broker", "broker_logger", "client_metrics" and "group". Raises KafkaError.
        """
        asked: list[str] = listed(kinds, str)
        unknown = [kind for kind in asked if kind not in _NUMBERS]
        if unknown:
            raise KafkaError(f"{unknown[0]!r} is not a kind of resource: give one of {', '.join(sorted(_NUMBERS))}")
        request = ListConfigResourcesRequest(resource_types=[_NUMBERS[kind] for kind in asked])
        response = await self._rpc.response("", self._rpc.any_broker, request, "listing resources", at_least=1)
        return sorted(
            ConfigResource(KINDS.get(one.resource_type, str(one.resource_type)), one.resource_name)
            for one in response.config_resources
        )


class _ToResource(ToBroker):
    """Items that are resources: a broker has its own settings, any broker has all others."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, -1)

    async def node(self, item: ConfigResource) -> int | None:
        return int(item.name) if item.kind == "broker" and item.name else None


def _resource(topic: str | None, broker: int | str | None, group: str | None) -> ConfigResource:
    given = {"topic": topic, "broker": None if broker is None else str(broker), "group": group}
    named = [ConfigResource(kind, name) for kind, name in given.items() if name is not None]
    if len(named) != 1:
        raise KafkaError("give one of topic, broker and group")
    return named[0]


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource(entry.config_source),
        entry.read_only,
        entry.is_sensitive,
        tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in entry.synonyms),
        entry.documentation or None,
    )
