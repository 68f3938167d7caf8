"""The errors of records with a schema from a registry."""


class SchemaError(ValueError):
    """A schema, or the columns of a DataFrame, cannot be used. The message names the field and the reason."""


class RegistryError(RuntimeError):
    """The schema registry does not answer, or refuses the request. It is never the fault of one record."""


class PoisonRecordError(ValueError):
    """A record cannot be read. The message has the reason, the schema id and the record's first bytes."""
