"""Administering settings: of topics, brokers and groups, read with their sources and changed one by one."""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.admin.requests import AdminRequests, Route, ToBroker, failure, is_unsupported
from fencepost.client.admin.topics import NO_TOPIC
from fencepost.client.admin.types import ConfigEntry, ConfigSynonym
from fencepost.client.errors import KafkaError
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
_DOCUMENTATION_SINCE, _GROUPS_SINCE = 3, 4
_OWN: Final[dict[int, ConfigSource]] = {
    ConfigResourceType.TOPIC: ConfigSource.TOPIC,
    ConfigResourceType.BROKER: ConfigSource.BROKER,
}
Changes = list[tuple[str, int, str | None]]


class ConfigAdmin:
    """The part of the admin client that is about settings. `broker` is an id, or "" for what holds for all brokers."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def configs(
        self,
        *,
        topic: str | None = None,
        broker: int | str | None = None,
        group: str | None = None,
        documentation: bool = False,
    ) -> dict[str, ConfigEntry]:
        """All settings of one topic, one broker or one group (Kafka 4.0), by name.

        `documentation` asks for what each of them means (Kafka 2.6). Raises KafkaError.
        """
        kind, name = _resource(topic, broker, group)
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
            include_synonyms=True,
            include_documentation=documentation,
        )
        what = f"settings of {name!r}"
        least = _DOCUMENTATION_SINCE if documentation else 1
        told = await self._rpc.answer(
            name, self._route(broker), request, what, lambda answer: answer.results[0], final=NO_TOPIC, at_least=least
        )
        return {entry.name: _entry(entry) for entry in told.configs}

    async def alter_configs(
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
        """Change settings of one topic, broker or group; None gives a setting back to its default. Others stay.

        `append` and `subtract` change settings that are lists. Before Kafka 2.3 all settings are read and written back
        with the changes, so that whoever changes others at the same time loses. Raises KafkaError (INVALID_CONFIG).
        """
        kind, name = _resource(topic, broker, group)
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
                answer = await self._rpc.ask(node, request)
            except KafkaError as error:
                if not is_unsupported(error) or kind not in _OWN:
                    raise
                return await self._replace(node, kind, name, steps, validate_only)
            one = answer.responses[0]
            return failure(one, what, ApiKey.INCREMENTAL_ALTER_CONFIGS, node, final=NO_TOPIC)

        await self._rpc.one(name, self._route(broker), ask, what)

    async def _replace(
        self, node: int | None, kind: int, name: str, steps: Changes, validate_only: bool
    ) -> KafkaError | None:
        """The same for brokers before KIP-339: whatever the resource has of its own, with the changes, as a whole."""
        there = await (
            self.configs(topic=name)
            if kind == ConfigResourceType.TOPIC
            else self.configs(broker=int(name) if name else "")
        )
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

    async def list_config_resources(self, *kinds: str) -> list[tuple[str, str]]:
        """(kind, name) of what has settings of its own (Kafka 4.1), sorted; of all kinds or only of these.

        Kinds are "topic", "broker", "broker_logger", "client_metrics" and "group". Raises KafkaError.
        """
        numbers = {name: number for number, name in KINDS.items()}
        unknown = [kind for kind in kinds if kind not in numbers]
        if unknown:
            raise KafkaError(f"{unknown[0]!r} is no kind of resource, these are: {sorted(numbers)}")
        request = ListConfigResourcesRequest(resource_types=[numbers[kind] for kind in kinds])
        answer = await self._rpc.answer("", self._rpc.any_broker, request, "listing resources", at_least=1)
        return sorted(
            (KINDS.get(one.resource_type, str(one.resource_type)), one.resource_name) for one in answer.config_resources
        )

    def _route(self, broker: int | str | None) -> Route:
        return ToBroker(self._rpc.cluster, broker) if isinstance(broker, int) else self._rpc.any_broker


def _resource(topic: str | None, broker: int | str | None, group: str | None) -> tuple[int, str]:
    given = [
        (ConfigResourceType.TOPIC, topic),
        (ConfigResourceType.BROKER, None if broker is None else str(broker)),
        (ConfigResourceType.GROUP, group),
    ]
    named = [(kind, name) for kind, name in given if name is not None]
    if len(named) != 1:
        raise KafkaError("name either a topic, a broker or a group")
    return named[0]


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        entry.config_source,
        entry.read_only,
        entry.is_sensitive,
        tuple(ConfigSynonym(one.name, one.value, one.source) for one in entry.synonyms),
        entry.documentation or None,
    )
