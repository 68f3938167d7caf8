"""Who leaves aborted records out of a read_committed fetch: the setting read.committed.filter, and who overrules it."""

from typing import Final

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.listener_settings import PREFIX, READ_COMMITTED_FILTER

BROKER: Final = "broker"


def filter_for(config: BrokerConfig, listener: str, client_id: str | None) -> str | None:
    """What applies to all fetches of a client on a listener; None: each topic's own setting.

    A client of `read.committed.filter.client.ids` comes first, then `listener.name.NAME.read.committed.filter`.
    """
    if config.read_committed_filter_client_ids and client_id in config.read_committed_filter_client_ids:
        return BROKER
    if not config.of_listeners:
        return None
    found = config.of_listeners.get(f"{PREFIX}{listener.lower()}.{READ_COMMITTED_FILTER}")
    return None if found is None else str(found)
