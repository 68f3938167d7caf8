"""The table of the broker's settings under Kafka's names: type, default, bounds, meaning. One row declares one.

From a row come the typed attribute of the configuration, the check of a value, DescribeConfigs and the reference.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from fencepost.broker.config import checks
from fencepost.broker.config.fields import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    SHORT,
    STRING,
    Setting,
    setting,
    settings_of,
)
from fencepost.broker.config.listeners import addresses_problem, security_protocol_map
from fencepost.broker.security.principal_mapping import PrincipalMapper
from fencepost.broker.security.sasl.exchange import MECHANISMS
from fencepost.broker.security.sasl.jaas import parse_jaas
from fencepost.broker.security.security_protocol import SecurityProtocol

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
INT_MAX = 2**31 - 1
DOUBLE_MAX = sys.float_info.max


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Settings:
    """The settings with an effect, or with a default for topics; `without_effect.py` has Kafka's others.

    A name's dots are underscores here. A default of None means "not set". `ours` marks names that Kafka does not have,
    `dynamic` settings that may change at run time.
    """

    # fmt: off
    # The node.
    node_id: int = setting(INT, 1, low=0, doc="The number of this node.")
    cluster_id: str | None = setting(STRING, None, ours=True,
        doc="The cluster's id; made at the first start where not given.")
    broker_rack: str | None = setting(STRING, None, doc="The rack this node tells clients.")
    unstable_api_versions_enable: bool = setting(BOOLEAN, False,
        doc="Whether versions are offered that Kafka may still change (InitProducerId v6, KIP-939).")
    durability: Literal["fsync", "os"] = setting(STRING, "fsync", choices=("fsync", "os"), ours=True,
        doc="fsync: acks=all is answered once the data is on the disk; os: once it is in the page cache, Kafka's way.")
    log_failure_policy: Literal["exit", "offline"] = setting(STRING, "exit", choices=("exit", "offline"), ours=True,
        doc="A failed flush ends the process (exit), or takes only the log of that file offline until the next start.")
    storage: Literal["files", "memory"] = setting(STRING, "files", choices=("files", "memory"), ours=True,
        doc="files, or memory for a broker that forgets.")
    metrics_listen: str | None = setting(STRING, None, ours=True,
        doc="HOST:PORT of the Prometheus endpoint; off where not given.")
    metrics_group_offsets_max: int = setting(INT, 10_000, low=0, ours=True,
        doc="Committed offsets that /metrics shows, with their lag, and share partitions. 0 shows none.")

    # Listeners and requests.
    listeners: tuple[str, ...] = setting(LIST, ("PLAINTEXT://:9092",), check=addresses_problem,
        doc="Where to listen: NAME://HOST:PORT, separated by commas; port 0 picks one.")
    advertised_listeners: tuple[str, ...] | None = setting(LIST, None, check=addresses_problem,
        doc="The address that clients of each listener use: NAME://HOST:PORT. Not set: the address they connected to.")
    listener_security_protocol_map: str | None = setting(STRING, None, check=checks.parsed_by(security_protocol_map),
        doc="The security protocol of each listener, NAME:PROTOCOL. Not set: each listener has its protocol's name.")
    inter_broker_listener_name: str | None = setting(STRING, None,
        doc="The listener for other brokers. It must exist; there are no other brokers.")
    security_inter_broker_protocol: str = setting(STRING, "PLAINTEXT", choices=tuple(SecurityProtocol.__members__),
        doc="Names the listener for other brokers by its protocol.")
    socket_request_max_bytes: int = setting(INT, 100 << 20, low=1, doc="The largest request taken.")
    socket_send_buffer_bytes: int = setting(INT, -1, low=-1, doc="SO_SNDBUF; -1 leaves it to the system.")
    socket_receive_buffer_bytes: int = setting(INT, -1, low=-1, doc="SO_RCVBUF; -1 leaves it to the system.")
    socket_listen_backlog_size: int = setting(INT, 1024, low=1, doc="Connections waiting to be accepted.")
    connections_max_idle_ms: int = setting(LONG, 600_000, doc="Silence after which a connection is closed.")
    fetch_max_bytes: int = setting(INT, 55 << 20, low=1024, doc="The most a fetch is answered with.")
    max_incremental_fetch_session_cache_slots: int = setting(INT, 1000, low=0,
        doc="Fetch sessions (KIP-227) that are kept, with 200 partitions each on average. 0: each fetch names all of"
            " its partitions.")
    max_request_partition_size_limit: int = setting(INT, 2000, low=1,
        doc="The most partitions in one DescribeTopicPartitions answer.")

    # What clients may use.
    max_connections: int = setting(INT, 10_000, low=1, doc="Connections at once; more are closed.")
    max_connections_per_ip: int = setting(INT, INT_MAX, low=0,
        doc="Connections at once from one address; more are closed.")
    max_connections_per_ip_overrides: tuple[str, ...] = setting(LIST, (), check=checks.connections_by_host,
        doc="Other bounds for some addresses: HOST:CONNECTIONS.")
    max_connection_creation_rate: int = setting(INT, INT_MAX, low=1,
        doc="Connections accepted per second; others wait to be accepted.")
    queued_max_request_bytes: int = setting(LONG, 256 << 20, low=-1,
        doc="Memory for requests that are not handled yet, of all connections together. The broker reads no large"
            " request while it is used up. At least socket.request.max.bytes; -1 for no bound.")
    queued_max_response_bytes: int = setting(LONG, 128 << 20, low=-1, ours=True,
        doc="Memory for responses that are not sent yet. Fetches get fewer bytes while it is used up; -1 for no bound.")
    request_arrival_timeout_ms: int = setting(LONG, 60_000, low=1, ours=True,
        doc="How long a request may take to arrive. The broker closes slower connections.")
    principal_max_connections: int = setting(INT, -1, low=-1, ours=True, dynamic=True,
        doc="Connections at once of one principal that has logged in; more are closed. -1 for no bound.")
    principal_max_transactional_ids: int = setting(INT, -1, low=-1, ours=True, dynamic=True,
        doc="Transactional ids of one principal; more are refused with POLICY_VIOLATION. -1 for no bound.")
    principal_max_open_transactions: int = setting(INT, -1, low=-1, ours=True, dynamic=True,
        doc="Open transactions of one principal; more are refused with POLICY_VIOLATION. -1 for no bound.")
    principal_max_producer_ids: int = setting(INT, -1, low=-1, ours=True, dynamic=True,
        doc="Producer ids that one principal may get, without a transactional id, within producer.id.expiration.ms;"
            " more are refused with POLICY_VIOLATION. -1 for no bound.")
    quota_window_num: int = setting(INT, 11, low=1,
        doc="Samples kept of the rates of client quotas; more make a burst longer.")
    quota_window_size_seconds: int = setting(INT, 1, low=1, doc="How long one of these samples takes.")
    controller_quota_window_num: int = setting(INT, 11, low=1, doc="As quota.window.num, for controller_mutation_rate.")
    controller_quota_window_size_seconds: int = setting(INT, 1, low=1,
        doc="As quota.window.size.seconds, for controller_mutation_rate.")

    # Rights.
    authorizer_class_name: str = setting(STRING, "", check=checks.authorizer,
        doc="`standard`, or Kafka's name of the same, to check every request against the ACLs. Empty: clients may"
            " do all.")
    super_users: str = setting(STRING, "", check=checks.parsed_by(checks.super_users),
        doc="Principals that no ACL restricts, separated by semicolons: User:alice;User:CN=broker,O=example.")
    allow_everyone_if_no_acl_found: bool = setting(BOOLEAN, False,
        doc="Whether a resource that no ACL matches is open to every client.")
    allow_remote_broker_requests: bool = setting(BOOLEAN, False,
        doc="Whether clients on other machines may send WriteTxnMarkers, AddPartitionsToTxn from v4 on, and requests to"
            " the share coordinator (83 to 87), while no authorizer is set. With an authorizer its ACLs decide.")

    # SASL, for all listeners or for one (listener.name.NAME.SETTING), and the first user.
    sasl_enabled_mechanisms: tuple[str, ...] = setting(LIST, (), choices=MECHANISMS,
        doc="The mechanisms by which clients log in (Kafka: GSSAPI, which this broker does not have).")
    sasl_jaas_config: str | None = setting(PASSWORD, None, check=checks.parsed_by(parse_jaas),
        doc='The users of PLAIN in JAAS syntax: PlainLoginModule with user_NAME="PASSWORD".')
    sasl_server_callback_handler_class: str = setting(CLASS, "", check=checks.token_validator,
        doc="The validator of OAUTHBEARER: not set, signed tokens only; Kafka's unsecured one, for tests.")
    connections_max_reauth_ms: int = setting(LONG, 0,
        doc="How long a login lasts; then the client logs in again (KIP-368). 0: as long as the connection.")
    connection_failed_authentication_delay_ms: int = setting(INT, 100, low=0, high=30_000,
        doc="How long the answer to a refused login waits.")
    sasl_server_max_receive_size: int = setting(INT, 32 << 10, low=1024,
        doc="The largest request before the login (Kafka: 524288). Large tokens may need more.")
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(STRING, None, check=checks.url_of_keys,
        doc="The keys that sign tokens: https://... or file:///...")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(LONG, HOUR_MS, low=1000,
        doc="How often the keys are read again.")
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = setting(LIST, None,
        doc="A token must be for one of these audiences.")
    sasl_oauthbearer_expected_issuer: str | None = setting(STRING, None, doc="A token must be of this issuer.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(INT, 30, low=0, doc="How much the issuer's clock may differ.")
    sasl_oauthbearer_sub_claim_name: str = setting(STRING, "sub", doc="The claim that names the user.")
    sasl_oauthbearer_scope_claim_name: str = setting(STRING, "scope", doc="The claim that has the scopes.")
    first_user: str | None = setting(STRING, None, ours=True,
        doc="The user to create for SCRAM at a start without any such user.")
    first_password: str | None = setting(PASSWORD, None, ours=True,
        doc="The password of `first.user`. The environment can give both.")

    # TLS, for all listeners or for one.
    ssl_keystore_type: str = setting(STRING, "JKS", choices=checks.STORE_TYPES, dynamic=True,
        doc="PEM or PKCS12; JKS stands for either, and a JKS file is refused.")
    ssl_keystore_location: str | None = setting(STRING, None, dynamic=True,
        doc="The file with the broker's private key and its certificate chain.")
    ssl_keystore_password: str | None = setting(PASSWORD, None, dynamic=True, doc="The password of a PKCS12 keystore.")
    ssl_key_password: str | None = setting(PASSWORD, None, dynamic=True,
        doc="The password of an encrypted private key in PEM.")
    ssl_keystore_key: str | None = setting(PASSWORD, None, dynamic=True,
        doc="The private key in PEM, in place of a file (KIP-651).")
    ssl_keystore_certificate_chain: str | None = setting(PASSWORD, None, dynamic=True,
        doc="The certificate chain in PEM, in place of a file (KIP-651).")
    ssl_truststore_type: str = setting(STRING, "JKS", choices=checks.STORE_TYPES, dynamic=True,
        doc="PEM or PKCS12; JKS stands for either, and a JKS file is refused.")
    ssl_truststore_location: str | None = setting(STRING, None, dynamic=True,
        doc="The file with the authorities that sign clients' certificates. Not set: the system's.")
    ssl_truststore_password: str | None = setting(PASSWORD, None, dynamic=True,
        doc="The password of a PKCS12 truststore.")
    ssl_truststore_certificates: str | None = setting(PASSWORD, None, dynamic=True,
        doc="The authorities' certificates in PEM, in place of a file (KIP-651).")
    ssl_client_auth: str = setting(STRING, "none", choices=("required", "requested", "none"), dynamic=True,
        doc="Whether clients need a certificate (mTLS).")
    ssl_enabled_protocols: tuple[str, ...] = setting(LIST, checks.TLS_VERSIONS, choices=checks.TLS_VERSIONS,
        dynamic=True, doc="The allowed versions of TLS.")
    ssl_protocol: str = setting(STRING, "TLSv1.3", choices=(*checks.TLS_VERSIONS, "TLS"), dynamic=True,
        doc="The highest allowed version of TLS.")
    ssl_cipher_suites: tuple[str, ...] = setting(LIST, (), check=checks.cipher_suites, dynamic=True,
        doc="The allowed cipher suites, by their IANA names. Empty: OpenSSL's choice.")
    ssl_principal_mapping_rules: str = setting(STRING, "DEFAULT", check=checks.parsed_by(PrincipalMapper),
        doc="How the subject of a client's certificate becomes a principal: RULE:pattern/replacement/[LU], DEFAULT.")

    # Topics, and what holds for a topic that has no value of its own (topic_settings.py).
    num_partitions: int = setting(INT, 1, low=1, high=100_000,
        doc="Partitions of a topic that is created without a count.")
    auto_create_topics_enable: bool = setting(BOOLEAN, True,
        doc="Whether asking for an unknown topic's metadata may create it.")
    delete_topic_enable: bool = setting(BOOLEAN, True, doc="Whether topics can be deleted at all.")
    default_replication_factor: int = setting(INT, 1, low=1, high=1,
        doc="Replicas of a topic that is created without a factor; one node holds one.")
    min_insync_replicas: int = setting(INT, 1, low=1, dynamic=True,
        doc="No effect here: one replica is all there are. Replicas that must have a batch before acks=all is"
            " answered.")
    unclean_leader_election_enable: bool = setting(BOOLEAN, False, dynamic=True,
        doc="No effect here: one replica leads always. Whether a replica outside the in-sync set may lead.")
    message_max_bytes: int = setting(INT, 1_048_588, low=0, dynamic=True, doc="The largest record batch taken.")
    message_max_decompressed_bytes: int = setting(INT, 128 << 20, low=1 << 20, high=INT_MAX, ours=True, dynamic=True,
        doc="The most bytes a batch may decompress to where its records must be read.")
    compression_type: str = setting(STRING, "producer", choices=checks.COMPRESSION_TYPES, dynamic=True,
        doc="The codec of stored batches; producer keeps the sender's.")
    compression_gzip_level: int = setting(INT, -1, check=checks.gzip_level, dynamic=True,
        doc="Level of gzip where the broker compresses.")
    compression_lz4_level: int = setting(INT, 9, low=1, high=17, dynamic=True,
        doc="Level of lz4 where the broker compresses.")
    compression_zstd_level: int = setting(INT, 3, low=-131_072, high=22, dynamic=True,
        doc="Level of zstd where the broker compresses.")
    read_committed_filter: str = setting(STRING, "client", choices=checks.READ_COMMITTED_FILTERS, ours=True,
        dynamic=True,
        doc="Who leaves aborted records out of read_committed fetches: the client, as in Kafka, or the broker,"
            " which then sends less.")
    read_committed_filter_client_ids: tuple[str, ...] = setting(LIST, (), ours=True,
        doc="Values of client.id for which the broker leaves aborted records out, whatever the listener and the"
            " topic say.")

    # Logs.
    log_dirs: tuple[str, ...] = setting(LIST, ("fencepost-data",), check=checks.one_directory,
        doc="The directory of the logs and the metadata.")
    log_segment_bytes: int = setting(INT, 1 << 30, low=1 << 20, dynamic=True, doc="Size at which a segment is closed.")
    log_roll_ms: int | None = setting(LONG, None, low=1, dynamic=True, doc="Age at which a segment is closed.")
    log_roll_hours: int = setting(INT, 168, low=1, doc="As log.roll.ms, in hours; used where that is not given.")
    log_roll_jitter_ms: int | None = setting(LONG, None, low=0, dynamic=True,
        doc="The most that is taken off log.roll.ms, for each segment another part of it.")
    log_roll_jitter_hours: int = setting(INT, 0, low=0, doc="As log.roll.jitter.ms, in hours.")
    log_retention_bytes: int = setting(LONG, -1, dynamic=True,
        doc="Size at which a partition's oldest segments go; -1 for no bound.")
    log_retention_ms: int | None = setting(LONG, None, check=checks.retention, dynamic=True,
        doc="Age at which segments go; -1 for never.")
    log_retention_minutes: int | None = setting(INT, None, check=checks.retention,
        doc="As log.retention.ms, in minutes; used where that is not given.")
    log_retention_hours: int = setting(INT, 168, check=checks.retention,
        doc="As log.retention.ms, in hours; used where neither is given.")
    log_retention_check_interval_ms: int = setting(LONG, 300_000, low=1, doc="How often old segments are looked for.")
    log_retention_spares_open_transactions: bool = setting(BOOLEAN, True, ours=True, dynamic=True,
        doc="Whether data from the start of an open transaction on outlives its time (Kafka: false).")
    log_segment_delete_delay_ms: int = setting(LONG, 60_000, low=0, dynamic=True,
        doc="How long the files of removed segments and deleted topics stay.")
    log_cleanup_policy: tuple[str, ...] = setting(LIST, ("delete",), choices=("compact", "delete"), dynamic=True,
        doc="What becomes of old data.")
    log_local_retention_bytes: int = setting(LONG, -2, low=-2, dynamic=True,
        doc="No effect here: there is no tiered storage. As local.retention.bytes.")
    log_local_retention_ms: int = setting(LONG, -2, low=-2, dynamic=True,
        doc="No effect here: there is no tiered storage. As local.retention.ms.")
    log_index_size_max_bytes: int = setting(INT, 10 << 20, low=4, dynamic=True,
        doc="The largest offset index of a segment.")
    log_index_interval_bytes: int = setting(INT, 4096, low=0, dynamic=True,
        doc="Bytes of log between two index entries.")
    log_flush_interval_messages: int = setting(LONG, LONG_MAX, low=1, dynamic=True,
        doc="No effect here, `durability` decides. Records after which a log is flushed (durability=os).")
    log_flush_interval_ms: int | None = setting(LONG, None, dynamic=True,
        doc="No effect here, `durability` decides. Age at which unflushed data is flushed (durability=os).")
    log_flush_scheduler_interval_ms: int = setting(LONG, LONG_MAX,
        doc="No effect here, `durability` decides. How often the need to flush is looked at.")
    log_preallocate: bool = setting(BOOLEAN, False, dynamic=True,
        doc="No effect here: room is reserved as it is needed. Whether segments get their full size first.")
    log_message_timestamp_type: str = setting(STRING, "CreateTime", choices=checks.TIMESTAMP_TYPES, dynamic=True,
        doc="Whose clock stamps records.")
    log_message_timestamp_before_max_ms: int = setting(LONG, LONG_MAX, low=0, dynamic=True,
        doc="How old a record's timestamp may be (KIP-937).")
    log_message_timestamp_after_max_ms: int = setting(LONG, HOUR_MS, low=0, dynamic=True,
        doc="How far ahead a record's timestamp may be (KIP-937).")
    log_unflushed_max_bytes: int = setting(LONG, -1, low=-1, ours=True,
        doc="Bytes of all logs that the system may keep from the disk before the broker has some written"
            " (durability=os); -1 for a 24th of the memory, at most 1 GiB.")
    log_write_thread_min_bytes: int = setting(INT, 128 << 10, low=1, ours=True,
        doc="Batches of this many bytes and more are written by a thread, not by the event loop.")

    # Compaction.
    log_cleaner_enable: bool = setting(BOOLEAN, True, doc="Whether logs are compacted at all.")
    log_cleaner_threads: int = setting(INT, 1, low=1, dynamic=True,
        doc="How many logs are compacted at a time, each in a quarter of a core.")
    log_cleaner_io_max_bytes_per_second: float = setting(DOUBLE, DOUBLE_MAX, low=1, dynamic=True,
        doc="The most that compactions read and write together.")
    log_cleaner_dedupe_buffer_size: int = setting(LONG, 128 << 20, low=1 << 10, dynamic=True,
        doc="Memory for the keys of all compactions under way, 24 bytes each.")
    log_cleaner_io_buffer_load_factor: float = setting(DOUBLE, 0.9, low=0, high=1, dynamic=True,
        doc="How full that memory may become; more keys take another pass.")
    log_cleaner_backoff_ms: int = setting(LONG, 15_000, low=1, dynamic=True,
        doc="How long the cleaner rests when nothing is due.")
    log_cleaner_delete_retention_ms: int = setting(LONG, DAY_MS, low=0, dynamic=True,
        doc="How long tombstones and markers outlive compaction.")
    log_cleaner_min_compaction_lag_ms: int = setting(LONG, 0, low=0, dynamic=True,
        doc="Age below which records are not compacted.")
    log_cleaner_max_compaction_lag_ms: int = setting(LONG, LONG_MAX, low=1, dynamic=True,
        doc="Age at which records must be compacted.")
    log_cleaner_min_cleanable_ratio: float = setting(DOUBLE, 0.5, low=0, high=1, dynamic=True,
        doc="Share of uncompacted data that starts a compaction.")

    # The metadata log and its snapshots.
    metadata_log_max_record_bytes_between_snapshots: int = setting(LONG, 20 << 20, low=1,
        doc="Bytes of metadata records after which a snapshot is taken.")
    metadata_log_max_snapshot_interval_ms: int = setting(LONG, 3_600_000, low=0,
        doc="The most time between two snapshots, where something has changed; 0 for no bound.")
    metadata_log_segment_bytes: int = setting(INT, 1 << 30, low=12,
        doc="Size at which a segment of the metadata log is closed; a snapshot may do it earlier.")
    metadata_max_retention_bytes: int = setting(LONG, 100 << 20,
        doc="Size at which what the snapshots hold goes from the metadata log; -1 for no bound.")

    # Groups and their offsets.
    offset_metadata_max_bytes: int = setting(INT, 4096, low=0,
        doc="The longest text that goes with a committed offset.")
    offsets_retention_minutes: int = setting(INT, 10_080, low=1, doc="How long an empty group's offsets are kept.")
    offsets_retention_check_interval_ms: int = setting(LONG, 600_000, low=1, doc="How often they are looked for.")
    offsets_topic_num_partitions: int = setting(INT, 50, low=1, high=10_000,
        doc="Partitions of __consumer_offsets; fixed once it exists.")
    offsets_topic_segment_bytes: int = setting(INT, 100 << 20, low=1 << 20, doc="Segment size of __consumer_offsets.")
    offsets_topic_replication_factor: int = setting(SHORT, 1, low=1, high=1, doc="Replicas of __consumer_offsets.")
    group_min_session_timeout_ms: int = setting(INT, 6000, low=1, doc="The shortest session a member may ask for.")
    group_max_session_timeout_ms: int = setting(INT, 1_800_000, low=1, doc="The longest session a member may ask for.")
    group_initial_rebalance_delay_ms: int = setting(INT, 0, low=0,
        doc="How long an empty group waits for company before its first assignment (Kafka: 3000).")
    group_max_size: int = setting(INT, INT_MAX, low=1, doc="The most members a group may have.")

    # Groups of the consumer protocol (KIP-848).
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(LIST, ("classic", "consumer"),
        choices=checks.REBALANCE_PROTOCOLS, check=checks.rebalance_protocols,
        doc="The rebalance protocols that are enabled, of classic and consumer. Share groups are enabled by the feature"
            " share.version alone.")
    group_consumer_session_timeout_ms: int = setting(INT, 45_000, low=1, doc="Silence after which a member is put out.")
    group_consumer_min_session_timeout_ms: int = setting(INT, 45_000, low=1, doc="The shortest session allowed.")
    group_consumer_max_session_timeout_ms: int = setting(INT, 60_000, low=1, doc="The longest session allowed.")
    group_consumer_heartbeat_interval_ms: int = setting(INT, 5000, low=1,
        doc="How often members must send a heartbeat.")
    group_consumer_min_heartbeat_interval_ms: int = setting(INT, 5000, low=1, doc="The shortest interval allowed.")
    group_consumer_max_heartbeat_interval_ms: int = setting(INT, 15_000, low=1, doc="The longest interval allowed.")
    group_consumer_max_size: int = setting(INT, INT_MAX, low=1, doc="The most members a group may have.")
    group_consumer_assignors: tuple[str, ...] = setting(LIST, checks.ASSIGNORS, choices=checks.ASSIGNORS,
        check=checks.assignors, doc="The assignors that members may ask for. The first is the default.")
    group_consumer_assignment_interval_ms: int = setting(INT, 0, low=0, dynamic=True,
        doc="How long a target assignment stands before the next one is made (Kafka: 1000).")
    group_consumer_min_assignment_interval_ms: int = setting(INT, 0, low=0, doc="The shortest such time allowed.")
    group_consumer_max_assignment_interval_ms: int = setting(INT, 15_000, low=0, doc="The longest such time allowed.")
    group_consumer_migration_policy: str = setting(STRING, "bidirectional", check=checks.migration_policy,
        doc="Which ways a group with members may go between the protocols: bidirectional, upgrade, downgrade,"
            " disabled.")
    group_consumer_regex_refresh_interval_ms: int = setting(INT, 600_000, low=10_000,
        doc="How often topics are matched with subscribed expressions, where none were created.")

    # Share groups (KIP-932).
    group_share_session_timeout_ms: int = setting(INT, 45_000, low=1, doc="Silence after which a member is put out.")
    group_share_min_session_timeout_ms: int = setting(INT, 45_000, low=1, doc="The shortest session allowed.")
    group_share_max_session_timeout_ms: int = setting(INT, 60_000, low=1, doc="The longest session allowed.")
    group_share_heartbeat_interval_ms: int = setting(INT, 5000, low=1, doc="How often members must send a heartbeat.")
    group_share_min_heartbeat_interval_ms: int = setting(INT, 5000, low=1, doc="The shortest interval allowed.")
    group_share_max_heartbeat_interval_ms: int = setting(INT, 15_000, low=1, doc="The longest interval allowed.")
    group_share_max_size: int = setting(INT, 200, low=1, high=1000, doc="The most members a share group may have.")
    group_share_assignors: tuple[str, ...] = setting(LIST, ("simple",), choices=("simple",),
        check=checks.share_assignors, doc="The assignor of all share groups.")
    group_share_assignment_interval_ms: int = setting(INT, 1000, low=0, dynamic=True,
        doc="How long a target assignment stands before the next one is made. A value altered at run time is kept"
            " within the two bounds.")
    group_share_min_assignment_interval_ms: int = setting(INT, 0, low=0, doc="The shortest such time allowed.")
    group_share_max_assignment_interval_ms: int = setting(INT, 15_000, low=0, doc="The longest such time allowed.")
    group_share_initialize_retry_interval_ms: int = setting(INT, 30_000, low=1,
        doc="How long a share partition may take to be initialized before that is tried again.")
    group_share_delivery_count_limit: int = setting(INT, 5, low=2, high=10,
        doc="How often a record is delivered at most, before it is given up.")
    group_share_min_delivery_count_limit: int = setting(INT, 2, low=2, high=5, doc="The lowest such limit allowed.")
    group_share_max_delivery_count_limit: int = setting(INT, 10, low=5, high=25, doc="The highest such limit allowed.")
    group_share_record_lock_duration_ms: int = setting(INT, 30_000, low=1000, high=HOUR_MS,
        doc="How long a record stays acquired without an acknowledgement, before it is delivered again.")
    group_share_min_record_lock_duration_ms: int = setting(INT, 15_000, low=1000, high=30_000,
        doc="The shortest such time allowed.")
    group_share_max_record_lock_duration_ms: int = setting(INT, 60_000, low=30_000, high=HOUR_MS,
        doc="The longest such time allowed.")
    group_share_partition_max_record_locks: int = setting(INT, 2000, low=100, high=10_000,
        doc="The most records of one partition that a share group may have in flight.")
    group_share_min_partition_max_record_locks: int = setting(INT, 100, low=100, high=2000,
        doc="The lowest such number allowed.")
    group_share_max_partition_max_record_locks: int = setting(INT, 4000, low=2000, high=10_000,
        doc="The highest such number allowed.")
    group_share_max_share_sessions: int = setting(INT, 2000, low=1,
        doc="The most share sessions at once, one for each connection of a member. At least group.share.max.size.")
    share_coordinator_state_topic_num_partitions: int = setting(INT, 50, low=1, high=10_000,
        doc="Partitions of __share_group_state; fixed once it exists.")
    share_coordinator_state_topic_segment_bytes: int = setting(INT, 100 << 20, low=1 << 20,
        doc="Segment size of __share_group_state.")
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(INT, 500, low=0, high=500,
        doc="Changes of a share partition that are stored before its whole state is stored again.")
    share_coordinator_state_topic_prune_interval_ms: int = setting(INT, 300_000, low=1,
        doc="How often records of __share_group_state that nothing needs are deleted.")
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(INT, 300_000, low=1,
        doc="How often the state of share partitions without changes is stored again, so that older records can be"
            " deleted.")

    errors_deadletterqueue_auto_create_topics_enable: bool = setting(BOOLEAN, False, dynamic=True, served=False,
        doc="Whether the broker creates the dead-letter topic of a share group (KIP-1191).")
    errors_deadletterqueue_topic_name_prefix: str = setting(STRING, "dlq.", dynamic=True, served=False,
        doc="How the name of a share group's dead-letter topic has to begin; empty for any name.")

    # Transactions and producer ids.
    transaction_max_timeout_ms: int = setting(INT, 900_000, low=1, dynamic=True,
        doc="The longest a transaction may ask to last.")
    transaction_state_log_num_partitions: int = setting(INT, 50, low=1, high=10_000,
        doc="Partitions of __transaction_state; fixed once it exists.")
    transaction_state_log_segment_bytes: int = setting(INT, 100 << 20, low=1 << 20, doc="Its segment size.")
    transaction_state_log_replication_factor: int = setting(SHORT, 1, low=1, high=1, doc="Its replicas.")
    transaction_state_log_min_isr: int = setting(INT, 1, low=1, high=1, doc="Its min.insync.replicas.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(INT, 10_000, low=1,
        doc="How often transactions past their timeout are aborted.")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(INT, 3_600_000, low=1,
        doc="How often unused transactional ids are looked for.")
    transaction_partition_verification_enable: bool = setting(BOOLEAN, True, dynamic=True,
        doc="Whether a write is checked against its open transaction (KIP-890).")
    transaction_two_phase_commit_enable: bool = setting(BOOLEAN, False, dynamic=True,
        doc="Whether a transaction may wait without a timeout for an outside coordinator (KIP-939).")
    transaction_hanging_check_interval_ms: int = setting(INT, 60_000, low=1, ours=True,
        doc="How often partitions are searched for hanging transactions.")
    transaction_hanging_abort: bool = setting(BOOLEAN, False, ours=True, dynamic=True,
        doc="Whether a transaction that is proved to hang is aborted, or only reported.")
    transactional_id_expiration_ms: int = setting(INT, 604_800_000, low=1, dynamic=True,
        doc="How long an unused id is kept.")
    producer_id_expiration_ms: int = setting(INT, 86_400_000, low=1, dynamic=True,
        doc="How long a partition remembers an idle producer (KIP-854).")
    producer_ids_max: int = setting(INT, 100_000, low=1, ours=True,
        doc="The most producers one partition remembers; those idle longest go first.")
    producer_id_expiration_check_interval_ms: int = setting(INT, 600_000, low=1,
        doc="How often idle producers are looked for.")

    # A cluster, whose logs are in PostgreSQL and an object store (docs/cluster.md).
    cluster_store: str | None = setting(PASSWORD, None, ours=True,
        doc="postgresql://USER@HOST:PORT/DATABASE, the database that orders the logs of a cluster. Not set: the"
            " broker is alone, and its logs are files.")
    cluster_objects: str | None = setting(STRING, None, ours=True,
        doc="Where a cluster keeps its records: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX,"
            " file:///DIRECTORY, or memory:// for tests.")
    cluster_lease_ms: int = setting(INT, 3000, low=200, ours=True,
        doc="A broker of a cluster that does not reach the database for this time may be replaced.")
    cluster_active_brokers: str = setting(STRING, "one", choices=("one", "all"), ours=True,
        doc="Which brokers of a cluster lead partitions: one, and the others stand by; or all.")
    replica_selector_class: str | None = setting(CLASS, None, choices=(checks.RACK_AWARE,),
        doc="How a cluster with cluster.store chooses the broker that a consumer reads from: by broker.rack and the"
            " consumer's client.rack. Not set: consumers read from leaders.")
    cluster_inline_max_bytes: int = setting(INT, 16 << 10, low=0, high=1 << 20, ours=True,
        doc="A commit of at most this many bytes keeps them in the database, and puts no object.")
    cluster_inline_bytes_per_second: int = setting(INT, 2 << 20, low=0, ours=True,
        doc="Larger commits keep their bytes in the database, too, up to this many bytes a second. More bytes go to"
            " objects, which cost less and take longer.")
    cluster_linger_ms: int = setting(INT, 250, low=0, ours=True,
        doc="How long a commit that puts an object waits for further records.")
    cluster_linger_max_bytes: int = setting(INT, 4 << 20, low=1, ours=True,
        doc="A commit of this many bytes waits no longer.")
    cluster_cache_directory: str | None = setting(STRING, None, ours=True,
        doc="The directory for cached records, which the broker empties. Not set: a temporary one.")
    cluster_cache_max_bytes: int = setting(LONG, 1 << 30, low=1 << 20, ours=True,
        doc="Records of a cluster that this broker keeps in its cache directory.")
    cluster_tail_max_bytes: int = setting(LONG, 1 << 30, low=1 << 20, ours=True,
        doc="Newest records of a cluster that this broker keeps in its cache directory, besides those that it read"
            " again.")
    cluster_merge_interval_ms: int = setting(INT, 10_000, low=10, ours=True,
        doc="How often the active broker looks for small commits to merge into segments.")
    cluster_merge_min_rows: int = setting(INT, 10, low=2, ours=True,
        doc="This number of adjacent commits of a partition, or segments of about one size, become one segment.")
    cluster_segment_max_bytes: int = setting(INT, 8 << 20, low=1 << 10, ours=True,
        doc="The size up to which a cluster merges a partition's records, unless segment.bytes is smaller. A reader"
            " of old records fetches so much at once.")
    cluster_gc_interval_ms: int = setting(INT, 60_000, low=10, ours=True,
        doc="How often the active broker looks for objects that no record is in any more. It deletes an object one"
            " such interval later.")
    cluster_sweep_interval_ms: int = setting(INT, DAY_MS, low=10, ours=True,
        doc="How often the active broker lists all objects, and deletes those that the database does not know: what"
            " a paused broker put too late. The first time is a tenth of this after the broker became active.")
    cluster_claim_max_age_ms: int = setting(INT, HOUR_MS, low=1000, ours=True,
        doc="An object that was announced, but not used within this time, is deleted. Its commit fails then, and is"
            " repeated with another object.")

    # The web console in the process of the broker.
    console_listen: str | None = setting(STRING, None, ours=True,
        doc="HOST:PORT of the web console; off where not given.")
    console_hosts: tuple[str, ...] = setting(LIST, (), ours=True,
        doc="Names under which browsers may reach the console, besides addresses and localhost.")
    console_certificate_location: str | None = setting(STRING, None, ours=True,
        doc="The certificate (PEM) with which the console serves HTTPS.")
    console_key_location: str | None = setting(STRING, None, ours=True,
        doc="The key (PEM) of the console's certificate, if it is in a file of its own.")

    # The schema registry in the process of the broker.
    schema_registry_listen: str | None = setting(STRING, None, ours=True,
        doc="HOST:PORT of the schema registry; off where not given.")
    schema_registry_certificate_location: str | None = setting(STRING, None, ours=True,
        doc="The certificate (PEM) with which the schema registry serves HTTPS.")
    schema_registry_key_location: str | None = setting(STRING, None, ours=True,
        doc="The key (PEM) of the schema registry's certificate, if it is in a file of its own.")
    # fmt: on


SETTINGS: Mapping[str, Setting] = MappingProxyType(settings_of(Settings))
