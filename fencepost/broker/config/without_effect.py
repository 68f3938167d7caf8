"""Kafka's broker settings that have no effect here, grouped by the reason.

Kafka's tools list and alter them, and a stock server.properties sets some. The broker accepts, stores and lists values
of the right type, and reports that they have no effect. Settings that protect something, and policies, are not among
them: a broker must not seem to enforce them. Names, types, defaults and dynamic updates are those of Apache Kafka 4.3.
The settings of 4.4 (`assignor.offload`, KIP-1263) are listed only if they are set.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fencepost.broker.config.fields import Kind, Setting, Update

NO_EFFECT = "No effect here: "
_TABLE = {
    "the broker is built otherwise than Kafka": """
add.partitions.to.txn.retry.backoff.max.ms INT 100
add.partitions.to.txn.retry.backoff.ms INT 20
background.threads INT 10 dynamic
broker.id.generation.enable BOOLEAN true
delete.records.purgatory.purge.interval.requests INT 1
fetch.purgatory.purge.interval.requests INT 1000
group.consumer.assignor.offload.enable BOOLEAN true unlisted
group.coordinator.append.linger.ms INT -1
group.coordinator.background.threads INT 2
group.coordinator.cached.buffer.max.bytes INT 1048588 dynamic
group.coordinator.threads INT 4
group.share.assignor.offload.enable BOOLEAN true unlisted
log.cleaner.io.buffer.size INT 524288 dynamic
log.flush.offset.checkpoint.interval.ms INT 60000
log.flush.start.offset.checkpoint.interval.ms INT 60000
num.io.threads INT 8 dynamic
num.network.threads INT 3 dynamic
num.recovery.threads.per.data.dir INT 2 dynamic
offsets.commit.timeout.ms INT 5000
offsets.load.buffer.size INT 5242880
offsets.topic.compression.codec INT 0
producer.purgatory.purge.interval.requests INT 1000
queued.max.requests INT 500
request.timeout.ms INT 30000
share.coordinator.append.linger.ms INT -1
share.coordinator.cached.buffer.max.bytes INT 1048588 dynamic
share.coordinator.load.buffer.size INT 5242880
share.coordinator.state.topic.compression.codec INT 0
share.coordinator.threads INT 1
share.coordinator.write.timeout.ms INT 5000
share.fetch.purgatory.purge.interval.requests INT 1000
socket.connection.setup.timeout.max.ms LONG 30000
socket.connection.setup.timeout.ms LONG 10000
transaction.state.log.load.buffer.size INT 5242880
""",
    "one node holds every replica, in one directory": """
alter.log.dirs.replication.quota.window.num INT 11
alter.log.dirs.replication.quota.window.size.seconds INT 1
auto.leader.rebalance.enable BOOLEAN true
controlled.shutdown.enable BOOLEAN true
leader.imbalance.check.interval.seconds LONG 300
log.dir.failure.timeout.ms LONG 30000
num.replica.alter.log.dirs.threads INT -
follower.replication.throttled.rate LONG - unlisted
leader.replication.throttled.rate LONG - unlisted
num.replica.fetchers INT 1 dynamic
replica.alter.log.dirs.io.max.bytes.per.second LONG - unlisted
replica.fetch.backoff.ms INT 1000
replica.fetch.max.bytes INT 1048576
replica.fetch.min.bytes INT 1
replica.fetch.response.max.bytes INT 10485760
replica.fetch.wait.max.ms INT 500
replica.high.watermark.checkpoint.interval.ms LONG 5000
replica.lag.time.max.ms LONG 30000
replica.socket.receive.buffer.bytes INT 65536
replica.socket.timeout.ms INT 30000
replication.quota.window.num INT 11
replication.quota.window.size.seconds INT 1
share.coordinator.state.topic.min.isr SHORT 2
share.coordinator.state.topic.replication.factor SHORT 3
""",
    "one node is broker and controller, behind one listener": """
broker.heartbeat.interval.ms INT 2000
broker.session.timeout.ms INT 9000
controller.listener.names LIST -
controller.quorum.append.linger.ms INT 25
controller.quorum.auto.join.enable BOOLEAN false
controller.quorum.bootstrap.servers LIST ""
controller.quorum.election.backoff.max.ms INT 1000
controller.quorum.election.timeout.ms INT 1000
controller.quorum.fetch.max.bytes INT 1048576
controller.quorum.fetch.snapshot.max.bytes INT 1048576
controller.quorum.fetch.timeout.ms INT 2000
controller.quorum.request.timeout.ms INT 2000
controller.quorum.retry.backoff.ms INT 20
controller.quorum.voters LIST ""
controller.socket.timeout.ms INT 30000
initial.broker.registration.timeout.ms INT 60000
metadata.log.dir STRING -
metadata.log.segment.ms LONG 604800000
metadata.max.idle.interval.ms INT 500
metadata.max.retention.ms LONG 604800000
process.roles LIST ""
""",
    "OpenSSL does TLS": """
ssl.endpoint.identification.algorithm STRING https per-broker
ssl.keymanager.algorithm STRING SunX509 per-broker
ssl.provider STRING - per-broker
ssl.secure.random.implementation STRING - per-broker
ssl.trustmanager.algorithm STRING PKIX per-broker
""",
    "there is no tiered storage": """
follower.fetch.last.tiered.offset.enable BOOLEAN false dynamic
remote.fetch.max.wait.ms INT 500 dynamic
remote.list.offsets.request.timeout.ms LONG 30000 dynamic
remote.log.index.file.cache.total.size.bytes LONG 1073741824 dynamic
remote.log.manager.copier.thread.pool.size INT 10 dynamic
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 dynamic
remote.log.manager.copy.quota.window.num INT 11
remote.log.manager.copy.quota.window.size.seconds INT 1
remote.log.manager.expiration.thread.pool.size INT 10 dynamic
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 dynamic
remote.log.manager.fetch.quota.window.num INT 11
remote.log.manager.fetch.quota.window.size.seconds INT 1
remote.log.manager.follower.thread.pool.size INT 2 dynamic
remote.log.manager.task.interval.ms LONG 30000
remote.log.manager.thread.pool.size INT 2
remote.log.metadata.custom.metadata.max.bytes INT 128
remote.log.metadata.manager.impl.prefix STRING rlmm.config.
remote.log.metadata.manager.listener.name STRING -
remote.log.reader.max.pending.tasks INT 100
remote.log.reader.threads INT 10 dynamic
remote.log.storage.manager.impl.prefix STRING rsm.config.
remote.log.storage.system.enable BOOLEAN false
""",
    "there are no streams groups": """
group.streams.assignment.interval.ms INT 1000 dynamic
group.streams.assignor.offload.enable BOOLEAN true unlisted
group.streams.heartbeat.interval.ms INT 5000
group.streams.initial.rebalance.delay.ms INT 3000
group.streams.max.assignment.interval.ms INT 15000
group.streams.max.heartbeat.interval.ms INT 15000
group.streams.max.session.timeout.ms INT 60000
group.streams.max.size INT 2147483647
group.streams.max.standby.replicas INT 2
group.streams.min.assignment.interval.ms INT 0
group.streams.min.heartbeat.interval.ms INT 5000
group.streams.min.session.timeout.ms INT 45000
group.streams.num.standby.replicas INT 0
group.streams.session.timeout.ms INT 45000
""",
    "GSSAPI is not supported": """
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit per-broker
sasl.kerberos.min.time.before.relogin LONG 60000 per-broker
sasl.kerberos.principal.to.local.rules LIST DEFAULT per-broker
sasl.kerberos.service.name STRING - per-broker
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 per-broker
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 per-broker
""",
    "there is no other broker to log in to": """
sasl.login.refresh.buffer.seconds SHORT 300 per-broker
sasl.login.refresh.min.period.seconds SHORT 60 per-broker
sasl.login.refresh.window.factor DOUBLE 0.8 per-broker
sasl.login.refresh.window.jitter DOUBLE 0.05 per-broker
sasl.mechanism.controller.protocol STRING GSSAPI
sasl.mechanism.inter.broker.protocol STRING GSSAPI per-broker
""",
    "metrics are those of the Prometheus endpoint": """
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter dynamic
metrics.num.samples INT 2
metrics.recording.level STRING INFO
metrics.sample.window.ms LONG 30000
telemetry.max.bytes INT 1048576
""",
}


_UPDATES = {"dynamic": Update.CLUSTER_WIDE, "unlisted": Update.CLUSTER_WIDE, "per-broker": Update.PER_BROKER}


def _row(line: str, why: str) -> Setting:
    name, kind, default, *dynamic = line.split()
    update = _UPDATES[dynamic[0]] if dynamic else Update.READ_ONLY
    raw = Setting(name, Kind[kind], "", f"{NO_EFFECT}{why}.", served=dynamic != ["unlisted"], update=update)
    return replace(raw, default=None if default == "-" else raw.parse("" if default == '""' else default))


WITHOUT_EFFECT: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for why, rows in _TABLE.items()
        for setting in (_row(line, why) for line in rows.split("\n") if line)
    }
)
