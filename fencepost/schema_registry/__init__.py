"""A schema registry with Confluent's REST API: a client of the broker, which keeps its schemas in `_schemas`."""

from typing import Final

CLIENT_ID: Final = "fencepost-schema-registry"
"""The client id of the registry's requests to brokers."""
