"""The settings of the authorizer: Kafka's names, and no setting that seems to protect but does not."""

import pytest

from fencepost.broker.config.broker_config import ConfigError, load_config
from fencepost.broker.config.topic_rules import make_authorizer
from fencepost.broker.security.principal import Principal
from fencepost.coordinator.metadata.image import EMPTY_IMAGE
from fencepost.protocol.admin_enums import AclOperation, AclResourceType

KAFKAS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("name", ["standard", KAFKAS])
def test_the_authorizer_has_the_super_users_of_the_settings(name: str) -> None:
    """StandardAuthorizer.getConfiguredSuperUsers: semicolons between, because names of certificates have commas."""
    config = load_config(assignments=[f"authorizer.class.name={name}", "super.users=User:CN=a,O=b ; User:root"])
    authorizer = make_authorizer(config, EMPTY_IMAGE)
    assert authorizer is not None
    assert authorizer.super_users == {"User:CN=a,O=b", "User:root"}
    verdict = authorizer.explain(Principal("User", "x"), "::1", AclOperation.READ, AclResourceType.TOPIC, "t")
    assert not verdict.allowed


@pytest.mark.parametrize("given", ["super.users=User:root", "allow.everyone.if.no.acl.found=true", "num.partitions=1"])
def test_a_broker_that_no_client_can_use_warns(given: str, caplog: pytest.LogCaptureFixture) -> None:
    make_authorizer(load_config(assignments=["authorizer.class.name=standard", given]), EMPTY_IMAGE)
    assert ("no client has any right" in caplog.text) is given.startswith("num")


def test_there_is_no_authorizer_unless_a_setting_names_one() -> None:
    assert make_authorizer(load_config(), EMPTY_IMAGE) is None


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["authorizer.class.name=com.example.Mine"], "'com.example.Mine' is not an authorizer of this broker"),
        (["authorizer.class.name=standard", "super.users=alice"], "'alice' is not a principal; write TYPE:NAME"),
        (["super.users=User:alice"], "super.users has no effect without authorizer.class.name"),
        (["allow.everyone.if.no.acl.found=true"], "allow.everyone.if.no.acl.found has no effect without"),
    ],
)
def test_a_setting_that_protects_nothing_ends_the_start(assignments: list[str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected.replace("'", ".")):
        load_config(assignments=assignments)
