"""The settings of the authorizer, under Kafka's names, and the authorizer that they describe."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.broker.config.fields import ConfigError, Kind, setting
from fencepost.broker.security.authorizer import Authorizer

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

STANDARD = ("standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
NEED_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")


def _class_problem(name: str) -> str | None:
    if name in ("", *STANDARD):
        return None
    return f"{name!r} is not an authorizer of this broker; use {' or '.join(STANDARD)}"


def parse_super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`; raises ValueError for one without a type."""
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in sorted(users):
        kind, _, name = user.partition(":")
        if not kind or not name:
            raise ValueError(
                f"{user!r} is not a principal; write TYPE:NAME, and semicolons between: User:alice;User:bob"
            )
    return users


def _users_problem(text: str) -> str | None:
    try:
        parse_super_users(text)
    except ValueError as error:
        return str(error)
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AccessSettings:
    """Whether the broker checks the rights of its clients, and who has all of them."""

    authorizer_class_name: str = setting(
        Kind.STRING,
        "",
        "`standard`, or Kafka's name of the same, to check every request against the ACLs. Empty: clients may do all.",
        check=_class_problem,
    )
    super_users: str = setting(
        Kind.STRING,
        "",
        "Principals that no ACL restricts, separated by semicolons: User:alice;User:CN=broker,O=example.",
        check=_users_problem,
    )
    allow_everyone_if_no_acl_found: bool = setting(
        Kind.BOOLEAN, False, "Whether a resource that no ACL matches is open to every client."
    )
    allow_remote_broker_requests: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether clients on other machines may send WriteTxnMarkers, and AddPartitionsToTxn from v4 on, while no "
        "authorizer is set. With an authorizer its ACLs decide.",
    )


def check_access(given: Mapping[str, object]) -> None:
    """Refuse settings of the authorizer without an authorizer, because they protect nothing. Raises ConfigError."""
    useless = [name for name in NEED_AUTHORIZER if given.get(name)]
    if useless and not given.get("authorizer.class.name"):
        raise ConfigError(f"{useless[0]} has no effect without authorizer.class.name; set that to standard")


def make_authorizer(config: AccessSettings, image: "MetadataImage") -> Authorizer | None:
    """The authorizer of these settings with the ACLs of `image`; None if the settings name no authorizer."""
    if not config.authorizer_class_name:
        return None
    super_users, is_open = parse_super_users(config.super_users), config.allow_everyone_if_no_acl_found
    if not (super_users or is_open or image.acls):
        logger.warning("no client has any right: there is no ACL and no super user; set super.users and start again")
    return Authorizer(image.acls.values(), super_users, allow_if_no_acl=is_open)
