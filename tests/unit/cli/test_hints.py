"""Errors of brokers, as commands print them: one sentence, with the broker's own words where they are enough."""

import pytest

from fencepost.cli.hints import sentence
from fencepost.client import KafkaError
from fencepost.client.admin import ItemsFailedError
from fencepost.client.admin.requests import failure
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api19_create_topics import CreatableTopicResult
from fencepost.protocol.messages.api32_describe_configs import DescribeConfigsResult
from fencepost.protocol.messages.api69_consumer_group_describe import DescribedGroup


def of_broker(code: ErrorCode, message: str | None, name: str = "orders") -> KafkaError:
    part = CreatableTopicResult(name=name, error_code=code, error_message=message)
    error = failure(part, f"creating topic {name!r}", ApiKey.CREATE_TOPICS, node=1)
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("code", "message", "shown"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.", "topic 'orders' already exists"),
        (ErrorCode.TOPIC_ALREADY_EXISTS, "No: it is there.", "creating topic 'orders': No: it is there"),
        (ErrorCode.INVALID_CONFIG, None, "creating topic 'orders' failed"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "topic 'orders' does not exist"),
    ],
)
def test_a_broker_s_message_stands_alone_if_it_names_the_thing(code: ErrorCode, message: str, shown: str) -> None:
    error = of_broker(code, message)
    assert error.broker_message == message
    assert sentence(error) == f"{shown} ({code.name})"


def test_a_name_with_a_colon_is_no_message() -> None:
    error = of_broker(ErrorCode.INVALID_TOPIC_EXCEPTION, "it has a ':'", name="a: b")
    assert sentence(error) == "creating topic 'a: b': it has a ':' (INVALID_TOPIC_EXCEPTION)"


def test_each_error_of_several_has_its_line() -> None:
    one, two = of_broker(ErrorCode.INVALID_CONFIG, None, "a"), of_broker(ErrorCode.INVALID_CONFIG, None, "b")
    error = ItemsFailedError("creating topics", {"a": one, "b": two})
    assert sentence(error) == "creating topic 'a' failed (INVALID_CONFIG)\n  creating topic 'b' failed (INVALID_CONFIG)"


def test_the_name_of_the_thing_is_data() -> None:
    """It does not depend on the words of the message, and may have any characters."""
    part = DescribeConfigsResult(resource_name="orders", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = failure(part, "the settings that were asked for", ApiKey.DESCRIBE_CONFIGS)
    assert error is not None
    assert error.subject == "orders"
    assert sentence(error) == "topic 'orders' does not exist (UNKNOWN_TOPIC_OR_PARTITION)"
    group = DescribedGroup(group_id="ann's", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="No ann's here.")
    missing = failure(group, "the group", ApiKey.CONSUMER_GROUP_DESCRIBE)
    assert missing is not None
    assert sentence(missing) == "no ann's here (GROUP_ID_NOT_FOUND)"
