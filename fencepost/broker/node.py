"""One broker: creates logs, coordinators and listener, starts them in order and stops them in order."""

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio

from fencepost.broker import periodic
from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.clock import SystemClock
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.topic_rules import (
    TopicRules,
    cleaner_settings,
    cluster_facts,
    group_config,
    make_authorizer,
    metadata_log_config,
    quota_windows,
    share_group_config,
    share_state_config,
    txn_config,
)
from fencepost.broker.coordinator_logs import InternalTopicLogs
from fencepost.broker.deleted_topics import DeletedTopics
from fencepost.broker.fetch.sessions import FetchSessions
from fencepost.broker.listeners import configured_addresses, end_points, open_listeners
from fencepost.broker.log.compaction.cleaner import LogCleaner
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.durability.large_writes import LargeWrites
from fencepost.broker.log.durability.sync_threads import FlushThreads, SyncThreads
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import FlushedLog
from fencepost.broker.log.storage.store import Store
from fencepost.broker.metadata.answers import MetadataAnswers
from fencepost.broker.metadata.identity import cluster_id_of, new_topic_id, with_counts
from fencepost.broker.metadata.log import METADATA_PARTITION, MetadataPartitionLog, open_metadata_log
from fencepost.broker.metadata.snapshots import MetadataSnapshots
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.network.context import Endpoint
from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.network.large_requests import LargeRequests
from fencepost.broker.network.server import Server
from fencepost.broker.partitions import Partitions
from fencepost.broker.peers.following import leave_to_others
from fencepost.broker.place import Alone, Place
from fencepost.broker.purgatory import Purgatory
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.quotas import ClientQuotas, updated_quotas
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.transactions.hanging import HangingCheck
from fencepost.broker.transactions.markers import Markers
from fencepost.coordinator.group.service import GroupService
from fencepost.coordinator.metadata.delta import AclsChanged, Change, PartitionsAdded, TopicCreated, TopicDeleted
from fencepost.coordinator.metadata.image import GROUP_VERSION, SHARE_VERSION
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.metadata.start_records import Registration
from fencepost.coordinator.ports import Clock, LogWriteFailed
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.share.group_config import ShareGroupSettings
from fencepost.coordinator.share.service import ShareStates
from fencepost.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.protocol.topics import (
    GROUP_TOPIC,
    METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0


class Node:
    """One broker. `run` starts it and serves until `stop`.

    The constructor opens and locks the data directory. `entropy` returns random bytes for the ids of topics, clusters
    and members. Simulations pass a `store` that replaces the data directory, `threads` that wait for its disk, and
    connections (`Server.adopt`), because without `listening` there is no socket. Raises DirectoryInUse, WrongDirectory,
    CorruptLogFile and OSError.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        *,
        store: Store | None = None,
        threads: FlushThreads | None = None,
        listening: bool = True,
        place: Place | None = None,
    ) -> None:
        self.config = config
        """The current settings: those of the start, overridden by those altered at run time."""
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics()
        self.response_bytes = ByteBudget(config.queued_max_response_bytes)
        self.purgatory = Purgatory()
        self.large_requests = LargeRequests()
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, entropy)
        self.place: Place = place or Alone(config, store)
        """Where this broker's logs are, which of them it leads, and which other brokers there are."""
        self.dispatch = Dispatch(unstable=config.unstable_api_versions_enable, wrap=self.place.wrapped)
        self.markers, self.hanging = Markers(self), HangingCheck(self)
        self.deleted_topics = DeletedTopics(self)
        self.metadata_answers = MetadataAnswers()
        self.endpoints: dict[str, Endpoint] = {}
        """The bound address of each listener by its name, in the order of the setting, once the broker listens."""
        self.server: Server | None = None
        """The server of the connections, once the broker runs."""
        self.metrics_endpoint: Endpoint | None = None
        self.authorizer: Authorizer | None = None
        """Replaced when ACLs change; None without authorizer.class.name."""
        self.stopping = False
        self.stopped, self._stop_wanted = trio.Event(), trio.Event()
        self._entropy = entropy
        self.quotas: ClientQuotas | None = None
        """The quotas of users and client ids; None if there are none."""
        self.upkeep_threads: FlushThreads = threads or SyncThreads(helpers_max=0)
        """Threads for disk work that no request waits for, or rarely."""
        self._listening = listening
        self._metadata_log: PartitionLog | None = None
        self._snapshots: MetadataSnapshots | None = None
        self.logs = self.place.open_logs(self._default_log_config)
        unflushed_max = config.log_unflushed_max_bytes
        self.flusher = LogFlusher(
            self.place.durability,
            self._log_lost if config.log_failure_policy == "offline" else None,
            threads,
            None if unflushed_max < 0 else unflushed_max,
            self.place.gathering,
            self._log_lost,
        )
        self.large_writes = LargeWrites(
            config.log_write_thread_min_bytes if self.place.has_files else None,
            lambda log: self.flusher.is_flushing(log) or self.upkeep_threads.is_busy,
            threads,
        )
        self.cleaner = LogCleaner(
            self.logs, lambda: cleaner_settings(self.config), self.clock.now_ms, self.flusher.lose
        )
        try:
            self._build_coordinators()
        except BaseException:
            self._close_after_failure()
            raise

    def _close_after_failure(self) -> None:
        """Close the logs; an error here must not hide why the start failed."""
        try:
            self.logs.close()
        except OSError as error:
            logger.error("cannot close the logs cleanly after a failed start: %s", error)

    def _build_coordinators(self) -> None:
        directory, node_id = self.config.data_directory, self.config.node_id
        cluster_id = cluster_id_of(directory, node_id, self.config.cluster_id, self._entropy)
        config = self.config = with_counts(self.config, self.logs.partitions())
        self._rules = TopicRules(config)
        followed = self.place.followed_metadata
        if followed is None:
            log = open_metadata_log(self.logs, self.flusher, metadata_log_config(config), config.secured)
            self._metadata_log, self._snapshots = log, self._metadata_snapshots(log)
        self.metadata = MetadataService(
            followed or MetadataPartitionLog(self.metadata_log, self.flusher),
            self.clock,
            cluster_facts(config, cluster_id, self.place.node_ids),
            self._rules,
            new_id=partial(new_topic_id, self._entropy),
            observer=self._metadata_changed,
            snapshots=followed.snapshots if followed else self._snapshots if self.place.outlives_process else None,
        )
        self.metadata.producer_ids_from = self.place.first_producer_id
        if self._snapshots is not None:
            self.metadata.deleted_topic_ids.update(self._snapshots.deleted_topic_ids())
        self.logs.deleted_topic_ids = self.metadata.deleted_topic_ids
        self.partitions = Partitions(self.logs, self.metadata, self.place)
        self.partition, self.absence = self.partitions.get, self.partitions.absence
        self.is_offline = self.partitions.is_offline
        sharing = share_state_config(config)
        count = sharing.share_coordinator_state_topic_num_partitions
        self.share_states = ShareStates(
            sharing,
            self._internal_logs(SHARE_STATE_TOPIC, count),
            self.metadata,
            self.clock,
            has_guests=self.place.commits_together,
        )
        persister = self.place.share_persister(self)
        self.shares = SharePartitions(self, persister)
        if self.shares.undecided is None:
            self.share_states.ended = self.shares.transaction_ended
        self.share_states.replaced = self.shares.forget
        self.groups = GroupService(
            group_config(config),
            self._internal_logs(GROUP_TOPIC, config.offsets_topic_num_partitions),
            self.metadata,
            self.clock,
            persister,
            share_group_config(config),
            new_id=lambda: str(uuid.UUID(bytes=self._entropy(16), version=4)),
        )
        count = config.transaction_state_log_num_partitions
        self.transactions = TransactionCoordinator(
            logs=self._internal_logs(TRANSACTION_TOPIC, count),
            markers=self.markers,
            producer_ids=self.place.producer_ids(self.metadata),
            topics=self.metadata,
            clock=self.clock,
            config=txn_config(config),
            others=self.place.remote_coordinators(self.metadata, count),
        )

    def _metadata_snapshots(self, log: PartitionLog) -> MetadataSnapshots:
        return MetadataSnapshots(
            log,
            self.flusher,
            self.upkeep_threads,
            self.clock,
            lambda: self.config,
            self.deleted_topics.lingering_ids,
            self.place.keep_metadata,
        )

    @property
    def metadata_log(self) -> PartitionLog:
        assert self._metadata_log is not None, "another broker has the metadata log"
        return self._metadata_log

    @property
    def runtimes(self) -> tuple[CoordinatorRuntime[Any, Any, Any], ...]:
        return self.share_states.runtime, self.groups.runtime, self.transactions.runtime

    def _internal_logs(self, topic: str, count: int) -> InternalTopicLogs:
        return InternalTopicLogs(
            topic, count, self.flusher, self.partitions.open, self.logs.partitions, lambda: self.place.coordinator_epoch
        )

    @property
    def endpoint(self) -> Endpoint:
        """The bound address of the first listener; without host and port until the broker listens."""
        return next(iter(self.endpoints.values()), Endpoint("", 0))

    # Used by handlers

    @property
    def consumer_protocol(self) -> bool:
        enabled = "consumer" in self.config.group_coordinator_rebalance_protocols
        return enabled and self.metadata.image.features.get(GROUP_VERSION, 0) >= 1

    @property
    def share_protocol(self) -> bool:
        return self.metadata.image.features.get(SHARE_VERSION, 0) >= 1

    def share_settings(self, group_id: str) -> ShareGroupSettings:
        return self.groups.shares.config.of_group(self.metadata.image.group_config(group_id))

    def _log_lost(self, log: FlushedLog, error: OSError) -> None:
        """A log went offline. The broker continues without it; for the metadata log it raises `error`."""
        if log is self._metadata_log:
            raise error
        logger.critical("partition is offline until the next start partition=%s cause=%s", log.tp, error)

    def _default_log_config(self, topic: str) -> LogConfig:
        if topic == METADATA_TOPIC:
            return metadata_log_config(self.config)
        config: LogConfig = self.metadata.log_config(topic)
        return config

    # Start and stop

    async def run(self, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED) -> None:
        """Start, serve until `stop`, and shut down cleanly.

        Raises, in a group, the errors that prevent the broker from continuing: a failed fsync, an unreadable log.
        """
        async with trio.open_nursery() as services:
            await services.start(self.flusher.run)
            await self._start_services(services)
            server = self.server = await self._make_server(services)
            await self.register()
            await self._serve_metrics(services)
            async with trio.open_nursery() as serving:
                await serving.start(server.run)
                task_status.started(self.endpoint)
                await self._stop_wanted.wait()
                self.purgatory.close()
                self.groups.close()
                await server.drain(DRAIN_SECONDS)
                self.place.stop_waiting()
            services.cancel_scope.cancel()
        self.large_writes.close()
        self.place.close(self.logs)
        logger.info("stopped in order")
        self.stopped.set()

    def stop(self) -> None:
        """Begin a clean shutdown; returns at once."""
        self.stopping = True
        self._stop_wanted.set()

    async def _start_services(self, services: trio.Nursery) -> None:
        """Load the coordinators in the order of their dependencies: metadata, share states, groups, transactions."""
        known_before = self._metadata_log is None or self._metadata_log.log_end_offset > 0
        some_lost = self.logs.quarantined(METADATA_PARTITION) > 0
        await self.place.load_metadata(self)
        self.authorizer = make_authorizer(self.config, self.metadata.image)
        self.deleted_topics.delete_strays()
        self.deleted_topics.find_lost_logs()
        self._settings_changed()
        await self.place.begin(self, services)
        forget = known_before and not some_lost
        await self.share_states.start(forget_deleted_topics=forget)
        await self.groups.start()
        if forget:
            self.groups.forget_deleted_topics()
        await self.transactions.start()
        await services.start(self.share_states.run)
        await services.start(self.shares.run)
        await services.start(self.groups.run)
        await services.start(self.transactions.run)
        periodic.begin(self, services, self._take_snapshot)
        self.place.begin_upkeep(self, services)

    async def _take_snapshot(self) -> None:
        if self._snapshots is not None:
            await self._snapshots.take_if_due(self.metadata)

    async def _make_server(self, services: trio.Nursery) -> Server:
        server = Server(self, self.logs.upkeep)
        opened = await open_listeners(server, self, services) if self._listening else None
        for one in self.place.listenings():
            server.listen(one)
        self.endpoints = configured_addresses(self.config) if opened is None else opened
        return server

    async def register(self) -> None:
        """Register this run of the broker in the metadata. No request depends on it, so an error is only logged."""
        if not self.place.is_controller:
            return
        found = Registration(self._entropy(16), end_points(self.config, self.endpoints), self.config.broker_rack)
        try:
            await self.metadata.register_broker(found)
        except LogWriteFailed as error:
            logger.error("the broker cannot be registered in the metadata: %s", error)

    async def _serve_metrics(self, services: trio.Nursery) -> None:
        if self.config.metrics_listen is None or not self.place.serves_pages:
            return
        from fencepost.broker.metrics.exposition import renderer  # here: it imports prometheus_client
        from fencepost.broker.metrics.pages import ready_alone

        self.metrics_endpoint = await self.place.serve_pages(
            self.config.metrics_listen, services, renderer(self), partial(ready_alone, self)
        )

    # Changes of the metadata

    def _metadata_changed(self, changes: Sequence[Change]) -> None:
        """Apply the newest metadata to logs and settings; called when it is durable."""
        for change in changes:
            self.place.metadata_changed(change)
            if isinstance(change, TopicDeleted):
                self.deleted_topics.delete(change.topic.name, change.topic.partitions)
            elif isinstance(change, TopicCreated | PartitionsAdded):
                self.groups.topics_changed([change.topic.name], created=isinstance(change, TopicCreated))
                leave_to_others(self, change.topic.name)
            elif isinstance(change, AclsChanged):
                self.authorizer = make_authorizer(self.config, self.metadata.image)
        if deleted := {change.topic.topic_id for change in changes if isinstance(change, TopicDeleted)}:
            self.share_states.forget_topics(deleted)
            self.deleted_topics.purge_checkpoints()
        self._settings_changed()

    def _settings_changed(self) -> None:
        """Pass the settings that may change at run time to the parts that use them."""
        image = self.metadata.image
        self.config = self._rules.broker_config(image)
        self.quotas = updated_quotas(self.quotas, image.quotas, quota_windows(self.config))
        self.transactions.config.change_to(txn_config(self.config, image))
        self.groups.consumers.config = group_config(self.config)
        self.groups.shares.config = share_group_config(self.config)
        for log in self.logs.logs():  # also those that no client has used since the start
            if self.metadata.exists(log.tp):
                log.config = self.metadata.log_config(log.tp.topic)
