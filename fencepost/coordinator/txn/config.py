"""The numbers of the transaction coordinator, under Kafka's names where the meaning is Kafka's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TxnConfig:
    """Settings of the coordinator; replaceable at run time, but for the two partition counts."""

    transaction_max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`: no client may ask for a longer timeout."""
    transactional_id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`: an id that is not used for so long is forgotten."""
    transaction_state_log_num_partitions: int = 50
    """`transaction.state.log.num.partitions`: never to change once there is data (row T1)."""
    offsets_topic_num_partitions: int = 50
    """`offsets.topic.num.partitions`: where AddOffsetsToTxn finds a group's partition."""
    transaction_version: int = 2
    """The finalized feature `transaction.version`: 0, 1 or 2."""
    transaction_partition_verification_enable: bool = True
    """`transaction.partition.verification.enable`: whether a TV1 producer's first write to a partition is checked
    against its open transaction (KIP-890 part 1)."""
    transaction_two_phase_commit_enable: bool = False
    """`transaction.two.phase.commit.enable`: whether a transaction without a timeout may be asked for (row T22)."""
    timeout_check_interval_ms: int = 500
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`: how often open transactions are checked against
    their timeouts. Kafka's 10 s lets one of 2 s last for 12; more than half a second is never used here."""
    id_expiration_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`: how often ids are checked for expiry."""
    completion_wait_ms: int = 5_000
    """How long a request waits for the markers of the transaction before, until it hears CONCURRENT_TRANSACTIONS."""
    marker_retry_backoff_ms: int = 20
    """The first pause before owed markers are tried again; doubled up to `marker_retry_backoff_max_ms`."""
    marker_retry_backoff_max_ms: int = 1_000
    max_transactional_ids: int = 1_000_000
    """How many ids are remembered at most; a further one is refused with POLICY_VIOLATION."""
    max_partitions_per_transaction: int = 100_000
    """How many partitions one transaction may have; more are refused with POLICY_VIOLATION."""
