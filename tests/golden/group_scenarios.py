"""What members, tools and producers do to groups, step by step; every answer is kept, with names for what is random.

    python -m tests.golden.group_scenarios HOST:PORT > tests/golden/group_answers.json

takes the answers of an Apache Kafka that runs with group.initial.rebalance.delay.ms=0.
"""

import json
import re
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import Any

from fencepost.protocol.registry import API_BY_KEY
from tests.kit.wire import Wire

COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, TXN_COMMIT, OFFSET_DELETE = (
    *(8, 9, 11, 12, 13, 14),
    *(15, 16, 42, 28, 47),
)
API_VERSIONS = 18
PARKED_S = 0.2
"""How long a broker that has read a request is given to park it."""
WAIT_S = 100.0
SESSION_MS = REBALANCE_MS = 60_000
"""Nobody is missed for being slow, this program least of all."""
MEMBER_ID_REQUIRED = 79
UUID_SIZE = 36
RANGE = (("range", b"m"),)
Protocols = tuple[tuple[str, bytes], ...]


def message(api_key: int, struct_name: str, /, **fields: Any) -> Any:
    """A struct of an API's messages."""
    return getattr(API_BY_KEY[api_key].module, struct_name)(**fields)


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription v0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + b"\xff\xff\xff\xff"


class Stage:
    """One run of one scenario against one broker."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._names: dict[str, str] = {}
        self._wires: list[Wire] = []
        self.run = uuid.uuid4().hex[:8]
        self.kept: list[list[Any]] = []

    def name(self, real: str, name: str) -> str:
        """Write `name` for `real` from now on."""
        if real:
            self._names[real] = name
        return real

    def keep(self, step: str, answer: Any) -> Any:
        """Remember an answer under the name of its step."""
        text = json.dumps(plain(answer), sort_keys=True)
        for real, name in self._names.items():
            text = text.replace(real, name)
        text = re.sub(r'"throttle_time_ms": \d+', '"throttle_time_ms": 0', text.replace(self.run, "RUN"))
        self.kept.append([step, json.loads(text)])
        return answer

    def member(self, group: str, **fields: Any) -> "Member":
        """A consumer with a connection of its own."""
        sock = socket.create_connection(self._address)
        sock.settimeout(WAIT_S)
        wire = Wire(sock, client_id="golden")
        self._wires.append(wire)
        return Member(self, wire, f"{group}-{self.run}" if group else "", **fields)

    def parked(self) -> None:
        """Return when the broker has surely read what was sent before, and had time to park it.

        It reads connections in the order in which something comes, so what is asked behind it is answered behind it.
        """
        for _ in range(2):
            self._scout.call(API_VERSIONS, 0, message(API_VERSIONS, "ApiVersionsRequest"))
        time.sleep(PARKED_S)

    @cached_property
    def _scout(self) -> Wire:
        return self.member("").wire

    def close(self) -> None:
        """Hang up."""
        for wire in self._wires:
            wire.close()


class Member:
    """One consumer; `ask` keeps its answers."""

    def __init__(
        self, stage: Stage, wire: Wire, group: str, *, instance: str | None = None, protocols: Protocols = RANGE
    ) -> None:
        self.stage = stage
        self.wire = wire
        self.group = group
        self.instance = instance
        self.protocols = protocols
        self.id = ""
        self.generation = -1
        self.kind = "consumer"

    def ask(self, step: str, api_key: int, version: int, request: Any) -> Any:
        """One request and its answer."""
        return self.stage.keep(step, self.wire.call(api_key, version, request))

    def send_join(self, version: int = 9, *, session_ms: int = SESSION_MS, rebalance_ms: int = REBALANCE_MS) -> int:
        """JoinGroup, whose answer may have to wait; the version, for `joined`."""
        protocols = [message(JOIN, "JoinGroupRequestProtocol", name=n, metadata=m) for n, m in self.protocols]
        request = message(
            JOIN,
            "JoinGroupRequest",
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.kind,
            protocols=protocols,
        )
        self.wire.send(JOIN, version, request)
        self.stage.parked()
        return version

    def joined(self, step: str, name: str, version: int = 9) -> Any:
        """The answer to `send_join`; the member is called `name` from now on."""
        answer = self.wire.receive(JOIN, version)[1]
        if len(answer.member_id) > UUID_SIZE:
            self.stage.name(answer.member_id, name)
        if answer.error_code in (0, MEMBER_ID_REQUIRED):
            self.id, self.generation = answer.member_id, answer.generation_id
        answer.members.sort(key=lambda member: (member.group_instance_id or "", member.metadata))
        return self.stage.keep(step, answer)

    def join(self, step: str, name: str, version: int = 9, **times: int) -> Any:
        """JoinGroup, twice where an id is promised first."""
        answer = self.joined(step, name, self.send_join(version, **times))
        if answer.error_code == MEMBER_ID_REQUIRED:
            answer = self.joined(f"{step}, with its id", name, self.send_join(version, **times))
        return answer

    def sync_request(self, *given: tuple[str, bytes], generation: int | None = None, protocol: str = "range") -> Any:
        """SyncGroup."""
        Assignment = API_BY_KEY[SYNC].module.SyncGroupRequestAssignment
        return message(
            SYNC,
            "SyncGroupRequest",
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.kind,
            protocol_name=protocol,
            assignments=[Assignment(member_id=member_id, assignment=data) for member_id, data in given],
        )

    def sync(self, step: str, *given: tuple[str, bytes], version: int = 5, **more: Any) -> Any:
        """SyncGroup and its answer."""
        return self.ask(step, SYNC, version, self.sync_request(*given, **more))

    def settle(self, name: str) -> "Member":
        """Be the only member of a stable group."""
        self.join(f"{name} joins", name)
        self.sync(f"{name} syncs", (self.id, name.encode()))
        return self

    def beat(self, step: str, version: int = 4, *, generation: int | None = None) -> Any:
        """Heartbeat."""
        at = self.generation if generation is None else generation
        request = message(
            HEARTBEAT,
            "HeartbeatRequest",
            group_id=self.group,
            generation_id=at,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return self.ask(step, HEARTBEAT, version, request)

    def leave(self, step: str, *names: tuple[str, str | None], version: int = 5) -> Any:
        """LeaveGroup."""
        members = [message(LEAVE, "MemberIdentity", member_id=m, group_instance_id=i) for m, i in names]
        request = message(LEAVE, "LeaveGroupRequest", group_id=self.group, member_id=names[0][0], members=members)
        return self.ask(step, LEAVE, version, request)

    def commit(self, step: str, topic: str | bytes, *offsets: int, version: int = 9, **fields: Any) -> Any:
        """OffsetCommit of the first partitions of a topic, named or by id."""
        Partition = API_BY_KEY[COMMIT].module.OffsetCommitRequestPartition
        note = fields.pop("note", "note")
        partitions = [
            Partition(partition_index=n, committed_offset=offset, committed_metadata=note)
            for n, offset in enumerate(offsets)
        ]
        named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
        fields = {"member_id": self.id, "group_instance_id": self.instance, **fields}
        request = message(
            COMMIT,
            "OffsetCommitRequest",
            group_id=self.group,
            generation_id_or_member_epoch=fields.pop("generation", self.generation),
            topics=[message(COMMIT, "OffsetCommitRequestTopic", partitions=partitions, **named)],
            **fields,
        )
        answer = self.wire.call(COMMIT, version, request)
        for one in answer.topics:
            one.partitions.sort(key=lambda part: part.partition_index)
        return self.stage.keep(step, answer)

    def fetch(
        self, step: str, topic: str | bytes | None, *partitions: int, version: int = 9, stable: bool = False
    ) -> Any:
        """OffsetFetch of one topic's partitions, or of all where the topic is None."""
        if version >= 8:
            named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
            one = message(FETCH, "OffsetFetchRequestTopics", partition_indexes=list(partitions), **named)
            group = message(
                FETCH, "OffsetFetchRequestGroup", group_id=self.group, topics=None if topic is None else [one]
            )
            request = message(FETCH, "OffsetFetchRequest", groups=[group], require_stable=stable)
        else:
            one = message(FETCH, "OffsetFetchRequestTopic", name=topic, partition_indexes=list(partitions))
            topics = None if topic is None else [one]
            request = message(FETCH, "OffsetFetchRequest", group_id=self.group, topics=topics, require_stable=stable)
        return self.ask(step, FETCH, version, request)

    def describe(self, step: str, version: int = 6) -> Any:
        """DescribeGroups."""
        answer = self.wire.call(DESCRIBE, version, message(DESCRIBE, "DescribeGroupsRequest", groups=[self.group]))
        answer.groups[0].members.sort(key=lambda member: (member.group_instance_id or "", member.member_assignment))
        return self.stage.keep(step, answer)

    def delete(self, step: str, version: int = 2) -> Any:
        """DeleteGroups."""
        return self.ask(step, DELETE, version, message(DELETE, "DeleteGroupsRequest", groups_names=[self.group]))

    def delete_offsets(self, step: str, *places: tuple[str, int]) -> Any:
        """OffsetDelete."""
        Partition = API_BY_KEY[OFFSET_DELETE].module.OffsetDeleteRequestPartition
        topics = [
            message(OFFSET_DELETE, "OffsetDeleteRequestTopic", name=t, partitions=[Partition(partition_index=p)])
            for t, p in places
        ]
        request = message(OFFSET_DELETE, "OffsetDeleteRequest", group_id=self.group, topics=topics)
        answer = self.wire.call(OFFSET_DELETE, 0, request)
        answer.topics.sort(key=lambda topic: topic.name)
        return self.stage.keep(step, answer)


def plain(value: Any) -> Any:
    """Structs as objects, bytes as hex; what is plain already stays."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return {name: plain(getattr(value, name)) for name in value.__slots__ if hasattr(value, name)}


def answers_of(address: str, scenario: Callable[[Stage], None]) -> list[list[Any]]:
    """What a broker answers to a scenario, step by step."""
    stage = Stage(address)
    try:
        scenario(stage)
    finally:
        stage.close()
    return stage.kept


def main() -> None:
    """Print the answers of one broker to all scenarios."""
    from tests.golden.group_plays import PLAYS

    waiting = Stage(sys.argv[1])
    wire = waiting.member("").wire
    asked = message(10, "FindCoordinatorRequest", key_type=0, coordinator_keys=["golden"])
    while wire.call(10, 4, asked).coordinators[0].error_code:  # it makes its topic when it is first asked for one
        time.sleep(PARKED_S)
    waiting.close()
    json.dump({name: answers_of(sys.argv[1], play) for name, play in PLAYS.items()}, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
