"""Records with a schema from a registry, in Spark's DataFrames: Avro, JSON Schema and Protobuf."""

from fencepost.spark_connector.schemas.dead_letters import route_dead_letters
from fencepost.spark_connector.schemas.derive import avro_schema_of
from fencepost.spark_connector.schemas.errors import PoisonRecordError, RegistryError, SchemaError
from fencepost.spark_connector.schemas.functions import from_registry, to_registry

__all__ = [
    "PoisonRecordError",
    "RegistryError",
    "SchemaError",
    "avro_schema_of",
    "from_registry",
    "route_dead_letters",
    "to_registry",
]
