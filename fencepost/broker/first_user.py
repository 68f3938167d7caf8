"""The first user of a broker: someone must be able to log in before anyone can add users."""

import logging
import secrets
from typing import TYPE_CHECKING

from fencepost.broker.security.audit import audit
from fencepost.coordinator.metadata.user_controller import CredentialUpsertion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.scram import ITERATIONS, MECHANISM_NUMBERS, SALT_BYTES, salted_password

if TYPE_CHECKING:
    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.coordinator.metadata.service import MetadataService

logger = logging.getLogger(__name__)


async def create_first_user(config: "BrokerConfig", metadata: "MetadataService") -> None:
    """Create the user of `first.user` if there is no SCRAM user yet, for both mechanisms."""
    name, password = config.first_user, config.first_password
    if name is None or password is None:
        return
    if metadata.image.scram:
        logger.info("first.user has no effect: there are users already, whose passwords stay")
        return
    for mechanism, number in MECHANISM_NUMBERS.items():
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password.encode(), salt, ITERATIONS)
        outcomes = await metadata.alter_credentials([], [CredentialUpsertion(name, number, ITERATIONS, salt, salted)])
        if outcomes[name].code is not ErrorCode.NONE:
            logger.error("cannot create the first user user=%r cause=%s", name, outcomes[name].message)
            return
        audit.info("USER_CHANGED by=first.user user=%r mechanism=%s iterations=%d", name, mechanism, ITERATIONS)
    logger.info("created the first user user=%r", name)
