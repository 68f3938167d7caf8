"""The options of the Spark source: those with an effect, those without, and those refused, with the reason."""

from fencepost.spark_connector.network import security
from fencepost.spark_connector.option_values import ONLY_FOR_JAVA

# The canonical spelling. Spark passes names in lower case.
SOURCE_NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "commitGroup",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxDecompressedBytes",
    "includeHeaders",
    "columns",
    "pushFilters",
    "read",
    "store",
    "objects",
)
STORES = {"store": "such as postgresql://USER@HOST/DATABASE", "objects": "such as s3://BUCKET/PREFIX"}
"""The options that name the stores of a cluster, with examples."""
# Spark's Kafka source needs these for its consumers. This source has no consumers, so they have no effect.
WITHOUT_EFFECT = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
KAFKA_NAMES = (
    "kafka.bootstrap.servers",
    "kafka.isolation.level",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.receive.buffer.bytes",
    "kafka.check.crcs",
    *security.NAMES,
)
# Consumer settings for groups, polling and metadata refresh. A query may set them; they have no effect here.
KAFKA_WITHOUT_EFFECT = (
    "kafka.group.id",
    "kafka.fetch.min.bytes",
    "kafka.fetch.max.bytes",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.records",
    "kafka.max.poll.interval.ms",
    "kafka.metadata.max.age.ms",
    "kafka.connections.max.idle.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.reconnect.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.client.dns.lookup",
    "kafka.client.rack",
    "kafka.allow.auto.create.topics",
    "kafka.exclude.internal.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.partition.assignment.strategy",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.group.remote.assignor",
    "kafka.socket.connection.setup.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.metadata.recovery.rebootstrap.trigger.ms",
    *ONLY_FOR_JAVA,
    *security.WITHOUT_EFFECT,
)
_KERBEROS = "GSSAPI is not supported; kafka.sasl.mechanism can be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
_OAUTH = "set kafka.sasl.oauth.token.provider = module:function, a function that returns a token"
REFUSED = {
    "isolation": "its name is kafka.isolation.level",
    "kafka.auto.offset.reset": "use startingOffsets; Spark keeps the position in its checkpoint",
    "kafka.enable.auto.commit": "Spark keeps the position in its checkpoint and commits nothing",
    "kafka.key.deserializer": "keys are always binary; convert them with DataFrame functions",
    "kafka.value.deserializer": "values are always binary; convert them with DataFrame functions",
    "kafka.interceptor.classes": "there is no Java consumer to call them",
    "kafka.sasl.kerberos.service.name": _KERBEROS,
    "kafka.sasl.oauthbearer.token.endpoint.url": _OAUTH,
    "kafka.sasl.oauthbearer.method": _OAUTH,
    "kafka.sasl.oauthbearer.config": _OAUTH,
    "kafka.sasl.oauthbearer.client.id": _OAUTH,
    "kafka.sasl.oauthbearer.client.secret": _OAUTH,
    "kafka.sasl.login.callback.handler.class": _OAUTH,
}
SPELLING = {
    name.lower(): name for name in (*SOURCE_NAMES, *WITHOUT_EFFECT, *KAFKA_NAMES, *KAFKA_WITHOUT_EFFECT, *REFUSED)
}
ONLY_STREAM = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "commitGroup",
)
# If several are given, the first of these counts, as in Spark's Kafka source.
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
