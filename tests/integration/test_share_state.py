"""The share coordinator of a real broker (KIP-932): what it answered is there after kill -9."""

from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    api83_initialize_share_group_state as initialize,
)
from fencepost.protocol.messages import api84_read_share_group_state as read
from fencepost.protocol.messages import api85_write_share_group_state as write
from fencepost.protocol.messages import api86_delete_share_group_state as delete
from fencepost.protocol.messages import api87_read_share_group_state_summary as summary
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of

NAME = "__share_group_state"
STARTED, PART = 100, 1


class Shares:
    """One share partition, over the wire."""

    def __init__(self, wire: Wire, topic_id: bytes) -> None:
        self.wire, self.topic_id = wire, topic_id

    def _ask(self, module: Any, verb: str, key: ApiKey, version: int, **fields: Any) -> Any:
        part = module.PartitionData(partition=PART, **fields)
        topic = getattr(module, f"{verb}Data")(topic_id=self.topic_id, partitions=[part])
        names = {type_.__name__: type_ for type_ in vars(module).values() if isinstance(type_, type)}
        request = next(type_ for name, type_ in names.items() if name.endswith("Request"))
        [found] = self.wire.call(key, version, request(group_id="gs", topics=[topic])).results
        assert found.topic_id == self.topic_id
        [result] = found.partitions
        assert result.partition == PART
        return result

    def initialize(self, state_epoch: int = 1) -> Any:
        key = ApiKey.INITIALIZE_SHARE_GROUP_STATE
        return self._ask(initialize, "InitializeState", key, 0, state_epoch=state_epoch, start_offset=STARTED)

    def read(self, leader_epoch: int) -> Any:
        return self._ask(read, "ReadState", ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=leader_epoch)

    def write(self, start: int, first: int, last: int, count: int = 1, leader_epoch: int = 3) -> Any:
        batch = write.StateBatch(first_offset=first, last_offset=last, delivery_state=2, delivery_count=count)
        fields = {"state_epoch": 1, "leader_epoch": leader_epoch, "start_offset": start, "state_batches": [batch]}
        return self._ask(
            write, "WriteState", ApiKey.WRITE_SHARE_GROUP_STATE, 1, delivery_complete_count=last - first + 1, **fields
        )

    def delete(self) -> Any:
        return self._ask(delete, "DeleteState", ApiKey.DELETE_SHARE_GROUP_STATE, 0)

    def summary(self) -> Any:
        return self._ask(summary, "ReadStateSummary", ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, leader_epoch=0)


def metadata(wire: Wire, name: str) -> Any:
    [topic] = wire.call(ApiKey.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
    return topic


def batches_of(found: Any) -> list[tuple[int, int, int, int]]:
    return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in found.state_batches]


def test_the_state_outlives_kill_9_and_not_its_topic(file_broker: BrokerProcess) -> None:
    """KIP-932: initialize, read and write are answered when they are durable. State of a deleted topic is gone."""
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t", partitions=2)
        shares = Shares(wire, metadata(wire, "t").topic_id)
        assert shares.write(STARTED, 100, 109).error_code == ErrorCode.INVALID_REQUEST
        assert shares.initialize().error_code == ErrorCode.NONE
        found = shares.read(3)
        assert (found.error_code, found.state_epoch, found.start_offset, batches_of(found)) == (0, 1, STARTED, [])
        assert shares.write(STARTED, 100, 109).error_code == ErrorCode.NONE
        assert shares.write(105, 120, 129).error_code == ErrorCode.NONE
        assert shares.write(105, 120, 129, leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        topic = metadata(wire, NAME)
        assert (topic.is_internal, len(topic.partitions)) == (True, 50)
        assert wire.produce(NAME, batch_of(b"x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        topic_id = shares.topic_id
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        shares = Shares(wire, topic_id)
        assert shares.read(2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        found = shares.read(4)
        assert (found.state_epoch, found.start_offset) == (1, 105)
        assert batches_of(found) == [(105, 109, 2, 1), (120, 129, 2, 1)]
        found = shares.summary()
        assert (found.leader_epoch, found.start_offset, found.delivery_complete_count) == (4, 105, 10)
        assert shares.initialize(state_epoch=0).error_code == ErrorCode.FENCED_STATE_EPOCH
        wire.call(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["t"]))
        assert shares.read(4).error_code == ErrorCode.INVALID_REQUEST
        wire.create_topic("t", partitions=2)
        again = Shares(wire, metadata(wire, "t").topic_id)
        assert again.topic_id != topic_id
        assert again.summary().start_offset == -1
        assert again.initialize().error_code == ErrorCode.NONE
        assert again.delete().error_code == ErrorCode.NONE
        assert again.read(4).error_code == ErrorCode.INVALID_REQUEST
