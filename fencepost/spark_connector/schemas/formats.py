"""The three formats by the kind of a schema. Each is imported when a schema of it is met."""

from fencepost.spark_connector.schemas.codec import Codec
from fencepost.spark_connector.schemas.errors import SchemaError
from fencepost.spark_connector.schemas.registry import AVRO, JSON, SchemaText


def codec_of(schema: SchemaText, message: str | None) -> Codec:
    """The codec of a schema. Raises SchemaError if it cannot be a Spark type, or has rules that would have to run."""
    if schema.rules:
        raise SchemaError(
            "the schema has rules (encryption, migration or checks), which Spark does not run. "
            "Use confluent-kafka's deserializer in a program of its own"
        )
    if schema.kind == AVRO:
        from fencepost.spark_connector.schemas.avro import AvroCodec

        return AvroCodec(schema, message)
    if schema.kind == JSON:
        from fencepost.spark_connector.schemas.json_schema import JsonCodec

        return JsonCodec(schema, message)
    from fencepost.spark_connector.schemas.protobuf import ProtobufCodec

    return ProtobufCodec(schema, message)
