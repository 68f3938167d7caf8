"""A stage for plays with groups of the consumer protocol: each step asks a broker and keeps the answer as one line.

    python -m tests.golden.consumer_stage HOST:PORT > tests/golden/consumer_answers.json

takes the answers of an Apache Kafka.
"""

import json
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.coordinator.group.consumer import embedded
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.wire import Wire

COMMIT, FETCH, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, METADATA = 8, 9, 11, 12, 13, 14, 15, 16, 42, 3
HEARTBEAT, DESCRIBE_CONSUMERS = 68, 69
RETRIED = {14, 15, 16}
GENERATED_SIZE = 12
"""Member ids of this size and more were made by a broker; the plays' own are shorter."""


def message(api_key: int, struct_name: str, /, **fields: Any) -> Any:
    """A struct of an API's messages."""
    return getattr(API_BY_KEY[api_key].module, struct_name)(**fields)


class Stage:
    """One run of one play; `pause` lets Kafka's assignment interval pass, which is 0 here."""

    def __init__(self, address: str, pause_s: float) -> None:
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host, int(port)))
        sock.settimeout(100)
        self._wire = Wire(sock, client_id="golden")
        self._pause_s = pause_s
        self.run = uuid.uuid4().hex[:8]
        self.kept: list[str] = []
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def close(self) -> None:
        """Hang up."""
        self._wire.close()

    def pause(self) -> None:
        """Let the assignment interval pass."""
        time.sleep(self._pause_s)

    def keep(self, step: str, *told: Any) -> None:
        """Remember an answer under the name of its step."""
        self.kept.append(f"{step}: " + " ".join(str(one) for one in told).replace(self.run, "RUN"))

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic; wait until it is known."""
        self._wire.create_topic(f"{name}-{self.run}", partitions=partitions)
        asked = message(METADATA, "MetadataRequestTopic", name=f"{name}-{self.run}")
        while True:
            found = self._wire.call(METADATA, 12, message(METADATA, "MetadataRequest", topics=[asked])).topics[0]
            if len(found.partitions) == partitions:
                break
            time.sleep(0.05)
        self._ids[name], self._names[found.topic_id] = found.topic_id, name
        time.sleep(self._pause_s / 5)  # Kafka's coordinator hears of it a little later

    def _assignment(self, assignment: Any, sizes: bool = False) -> dict[str, Any] | None:
        if assignment is None:
            return None
        found = {self._names[one.topic_id]: sorted(one.partitions) for one in assignment.topic_partitions}
        return {name: len(found[name]) if sizes else found[name] for name in sorted(found)}

    # ---- the consumer protocol

    def beat(self, step: str, group: str, member: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        """ConsumerGroupHeartbeat; `owned`, `topics` and `regex` speak of the play's own topics."""
        owned: Mapping[str, Sequence[int]] | None = fields.pop("owned", None)
        topics = fields.pop("topics", None)
        regex = fields.pop("regex", None)
        request = message(
            HEARTBEAT,
            "ConsumerGroupHeartbeatRequest",
            group_id=f"{group}-{self.run}" if group else "",
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else [f"{name}-{self.run}" for name in topics],
            subscribed_topic_regex=None if regex is None else regex.replace("RUN", self.run),
            topic_partitions=None
            if owned is None
            else [
                message(HEARTBEAT, "TopicPartitions", topic_id=self._ids[name], partitions=list(partitions))
                for name, partitions in owned.items()
            ],
            **fields,
        )
        answer = self._wire.call(HEARTBEAT, version, request)
        while answer.error_code in RETRIED:
            time.sleep(0.2)
            answer = self._wire.call(HEARTBEAT, version, request)
        error = ErrorCode(answer.error_code)
        # RE2 and RE2/J find their own words for what is wrong with an expression.
        said = "" if error is ErrorCode.INVALID_REGULAR_EXPRESSION else answer.error_message or ""
        assigned = self._assignment(answer.assignment)
        self.keep(step, error.name, answer.member_epoch, assigned, said, "" if answer.member_id else answer.member_id)
        return answer

    def join(self, step: str, group: str, member: str, **fields: Any) -> Any:
        """A heartbeat that joins, with all that is needed for it."""
        return self.beat(
            step, group, member, 0, **{"rebalance_timeout_ms": 60_000, "owned": {}, "topics": ("t",)} | fields
        )

    def describe(self, group: str, version: int = 1, *, sizes: bool = False) -> None:
        """ConsumerGroupDescribe; `sizes`: which partitions a member gets is the assignor's choice."""
        request = message(DESCRIBE_CONSUMERS, "ConsumerGroupDescribeRequest", group_ids=[f"{group}-{self.run}"])
        [found] = self._wire.call(DESCRIBE_CONSUMERS, version, request).groups
        error, epochs = ErrorCode(found.error_code).name, (found.group_epoch, found.assignment_epoch)
        self.keep(f"describe {group}", error, found.group_state, *epochs, found.assignor_name, found.error_message)
        for one in sorted(
            found.members, key=lambda one: (one.instance_id or "", self._short(one.member_id), one.member_epoch)
        ):
            names = sorted(one.subscribed_topic_names)
            has, target = self._assignment(one.assignment, sizes), self._assignment(one.target_assignment, sizes)
            who = (self._short(one.member_id), one.instance_id, one.rack_id, one.client_id, one.member_type)
            self.keep("-", *who, one.member_epoch, names, repr(one.subscribed_topic_regex), has, "->", target)

    def _short(self, member_id: str) -> str:
        return member_id if len(member_id) < GENERATED_SIZE else "MADE"

    # ---- classic members

    def classic_join(self, step: str, group: str, member: str, **fields: Any) -> Any:
        """JoinGroup v9 with an embedded subscription v1."""
        owned = [
            embedded.TopicPartition(topic=f"{name}-{self.run}", partitions=list(partitions))
            for name, partitions in fields.pop("owned", {}).items()
        ]
        wanted = embedded.ConsumerProtocolSubscription(topics=[f"t-{self.run}"], owned_partitions=owned)
        data = b"\0\1" + embedded.ConsumerProtocolSubscription.encode(wanted, 1)
        protocols = [
            message(JOIN, "JoinGroupRequestProtocol", name=name, metadata=data)
            for name in fields.pop("protocols", ("range", "roundrobin"))
        ]
        request = message(
            JOIN,
            "JoinGroupRequest",
            group_id=f"{group}-{self.run}",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member,
            protocols=protocols,
            **{"protocol_type": "consumer"} | fields,
        )
        answer = self._wire.call(JOIN, 9, request)
        error, leads = ErrorCode(answer.error_code).name, bool(answer.leader) and answer.leader == answer.member_id
        protocol = (answer.protocol_type, answer.protocol_name)
        self.keep(step, error, answer.generation_id, *protocol, leads, answer.skip_assignment, len(answer.members))
        return answer

    def classic_sync(self, step: str, group: str, member: str, generation: int, *given: int, **fields: Any) -> None:
        """SyncGroup v5; `given`: partitions of t that a leader hands to itself."""
        assignments = []
        if given:
            topic = embedded.TopicPartition(topic=f"t-{self.run}", partitions=list(given))
            data = b"\0\1" + embedded.ConsumerProtocolAssignment.encode(
                embedded.ConsumerProtocolAssignment(assigned_partitions=[topic]), 1
            )
            assignments = [message(SYNC, "SyncGroupRequestAssignment", member_id=member, assignment=data)]
        request = message(
            SYNC,
            "SyncGroupRequest",
            group_id=f"{group}-{self.run}",
            generation_id=generation,
            member_id=member,
            assignments=assignments,
            **{"protocol_type": "consumer", "protocol_name": "range"} | fields,
        )
        answer = self._wire.call(SYNC, 5, request)
        found = embedded.read_assignment(bytes(answer.assignment)).partitions
        partitions = {name: sorted(all_) for name, all_ in found.items()}
        version = bytes(answer.assignment)[:2].hex()
        self.keep(
            step, ErrorCode(answer.error_code).name, answer.protocol_type, answer.protocol_name, partitions, version
        )

    def classic_beat(self, step: str, group: str, member: str, generation: int, instance: str | None = None) -> None:
        """Heartbeat v4."""
        fields = {"group_id": f"{group}-{self.run}", "generation_id": generation, "group_instance_id": instance}
        answer = self._wire.call(BEAT, 4, message(BEAT, "HeartbeatRequest", member_id=member, **fields))
        self.keep(step, ErrorCode(answer.error_code).name)

    def classic_leave(self, step: str, group: str, *members: str) -> None:
        """LeaveGroup v5."""
        names = [message(LEAVE, "MemberIdentity", member_id=member) for member in members]
        request = message(LEAVE, "LeaveGroupRequest", group_id=f"{group}-{self.run}", members=names)
        answer = self._wire.call(LEAVE, 5, request)
        self.keep(step, ErrorCode(answer.error_code).name, [ErrorCode(one.error_code).name for one in answer.members])

    # ---- offsets and operators

    def commit(self, step: str, group: str, member: str, epoch: int, *partitions: int, version: int = 9) -> None:
        """OffsetCommit of offset 5 in some partitions of t."""
        parts = [
            message(
                COMMIT, "OffsetCommitRequestPartition", partition_index=one, committed_offset=5, committed_metadata=""
            )
            for one in partitions
        ]
        topic = message(
            COMMIT, "OffsetCommitRequestTopic", name=f"t-{self.run}", topic_id=self._ids["t"], partitions=parts
        )
        fields = {"group_id": f"{group}-{self.run}", "generation_id_or_member_epoch": epoch, "member_id": member}
        answer = self._wire.call(COMMIT, version, message(COMMIT, "OffsetCommitRequest", topics=[topic], **fields))
        errors = [(one.partition_index, ErrorCode(one.error_code).name) for one in answer.topics[0].partitions]
        self.keep(step, sorted(errors))

    def fetch(self, step: str, group: str, member: str | None, epoch: int) -> None:
        """OffsetFetch v9 of the first two partitions of t."""
        topic = message(FETCH, "OffsetFetchRequestTopics", name=f"t-{self.run}", partition_indexes=[0, 1])
        fields = {"group_id": f"{group}-{self.run}", "member_id": member, "member_epoch": epoch}
        asked = message(FETCH, "OffsetFetchRequestGroup", topics=[topic], **fields)
        [found] = self._wire.call(FETCH, 9, message(FETCH, "OffsetFetchRequest", groups=[asked])).groups
        offsets = [(one.partition_index, one.committed_offset) for topic in found.topics for one in topic.partitions]
        self.keep(step, ErrorCode(found.error_code).name, offsets)

    def operators(self, group: str, **filters: Any) -> None:
        """ListGroups and DescribeGroups."""
        listed = self._wire.call(LIST, 5, message(LIST, "ListGroupsRequest", **filters)).groups
        mine = [
            (one.protocol_type, one.group_state, one.group_type)
            for one in listed
            if one.group_id == f"{group}-{self.run}"
        ]
        [one] = self._wire.call(
            DESCRIBE, 6, message(DESCRIBE, "DescribeGroupsRequest", groups=[f"{group}-{self.run}"])
        ).groups
        told = (ErrorCode(one.error_code).name, one.error_message, one.group_state, one.protocol_type, len(one.members))
        self.keep(f"list {group}", mine, *told)

    def delete(self, group: str) -> None:
        """DeleteGroups."""
        request = message(DELETE, "DeleteGroupsRequest", groups_names=[f"{group}-{self.run}"])
        [found] = self._wire.call(DELETE, 2, request).results
        self.keep(f"delete {group}", ErrorCode(found.error_code).name)


def answers_of(address: str, play: Callable[[Stage], None], pause_s: float) -> list[str]:
    """What a broker answers to a play, step by step."""
    stage = Stage(address, pause_s)
    try:
        play(stage)
    finally:
        stage.close()
    return stage.kept


def main() -> None:
    """Print the answers of an Apache Kafka to all plays."""
    from tests.golden.consumer_plays import PLAYS

    json.dump({name: answers_of(sys.argv[1], play, 1.1) for name, play in PLAYS.items()}, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
