"""Plans, applied by one metadata transaction."""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.plan_types import Applied, ClusterPlan, PlannedChange, WantedAcl, shown_rule
from fencepost.client.admin.requests import AdminRequests, failure
from fencepost.client.admin.topics import TopicAdmin
from fencepost.client.errors import FatalError, KafkaError, RetriableError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api19_create_topics import (
    CreateTopicsRequest,
    Plan,
    PlannedAcl,
    PlannedResource,
    PlannedSetting,
    PlannedTopic,
)

TAGS_SINCE: Final = 5
RESOURCE_TYPES: Final = {"broker": 4, "group": 32}
APPLYING: Final = "applying a plan"
ACL: Final = "acl"


class PlanAdmin:
    """The part of the admin client that applies plans."""

    def __init__(self, rpc: AdminRequests, topics: TopicAdmin) -> None:
        self._rpc = rpc
        self._topics = topics

    async def apply_at_once(self, plan: ClusterPlan, validate_only: bool) -> Applied:
        """Apply the whole plan in one request; a broker without plans reads it as an empty request."""
        request = CreateTopicsRequest(
            topics=[], timeout_ms=self._rpc.timeout_ms, validate_only=validate_only, plan=_on_the_wire(plan)
        )

        async def ask(node: int | None) -> Applied | KafkaError:
            response = await self._rpc.ask(node, request, at_least=TAGS_SINCE)
            if response.plan is None:
                return FatalError(
                    "this broker is not fencepost and cannot apply a plan atomically; give atomic=False to apply it"
                    " step by step",
                    code=ErrorCode.UNSUPPORTED_VERSION,
                    api="CreateTopics",
                    node=node,
                )
            problems = [(_subject(plan, one), one) for one in response.plan.problems]
            errors = {subject: _error(subject, one, node) for subject, one in problems}
            for error in errors.values():
                if isinstance(error, RetriableError):
                    return error
            if errors:
                return ItemsFailedError(APPLYING, errors)
            return Applied(tuple(_change(plan, one) for one in response.plan.changes), atomic=True)

        done = await self._rpc.one("", self._rpc.controller, ask, APPLYING)
        if not validate_only:
            await self._settle(done.changes)
        return done

    async def _settle(self, changes: tuple[PlannedChange, ...]) -> None:
        """Update this client's metadata of topics."""
        topics = [one for one in changes if one.kind == "topic"]
        for one in topics:
            if one.action == "delete" and one.setting in ("", "partitions"):
                self._rpc.cluster.forget_topic(one.name)
        await self._topics.wait_for([one.name for one in topics if one.action == "create"])


def _on_the_wire(plan: ClusterPlan) -> Any:
    return Plan(
        topics=[
            PlannedTopic(
                name=one.name,
                partitions=one.partitions,
                replication_factor=one.replication_factor,
                absent=one.absent,
                settings=_settings(one.configs),
            )
            for one in plan.topics
        ],
        resources=[
            PlannedResource(
                resource_type=RESOURCE_TYPES[one.kind], resource_name=one.name, settings=_settings(one.configs)
            )
            for one in plan.configs
        ],
        acls=[_rule(one) for one in plan.acls],
    )


def _settings(configs: Mapping[str, str | None]) -> list[Any]:
    return [PlannedSetting(name=name, value=value) for name, value in configs.items()]


def _rule(wanted: WantedAcl) -> Any:
    rule = wanted.rule
    return PlannedAcl(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
        absent=wanted.absent,
    )


def _subject(plan: ClusterPlan, one: Any) -> str:
    if one.kind == ACL:
        return f"acl {shown_rule(plan.acls[int(one.name)].rule)}"
    return f"{one.kind} {one.name or 'all'}" if one.kind else "the plan"


def _error(subject: str, one: Any, node: int | None) -> KafkaError:
    final = frozenset(ErrorCode) if one.kind else ()
    error = failure(one, subject, ApiKey.CREATE_TOPICS, node, final=final)
    return error or KafkaError(f"{subject}: the broker rejected it without a reason", api="CreateTopics", node=node)


def _change(plan: ClusterPlan, one: Any) -> PlannedChange:
    """A change in the response; it names rules by their place in the plan."""
    if one.kind != ACL:
        return PlannedChange(one.action, one.kind, one.name, one.setting, one.before, one.after)
    shown = shown_rule(plan.acls[int(one.name)].rule)
    before, after = (shown, None) if one.action == "delete" else (None, shown)
    return PlannedChange(one.action, ACL, shown, "", before, after)
