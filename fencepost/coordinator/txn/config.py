"""The settings of the transaction coordinator, under Kafka's names where the meaning is Kafka's."""

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(slots=True)
class TxnConfig:
    """Settings of the coordinator, whose parts share one object; all but the two partition counts may change."""

    transaction_max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`: no client may ask for a longer timeout."""
    transactional_id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`: an id that is unused for this long expires."""
    transaction_state_log_num_partitions: int = 50
    """`transaction.state.log.num.partitions`: must not change once there is data (row T1)."""
    offsets_topic_num_partitions: int = 50
    """`offsets.topic.num.partitions`: where AddOffsetsToTxn finds a group's partition."""
    transaction_version: int = 2
    """The finalized feature `transaction.version`: 0, 1 or 2."""
    transaction_partition_verification_enable: bool = True
    """`transaction.partition.verification.enable`: whether a TV1 producer's first write to a partition is checked
    against its open transaction (KIP-890 part 1)."""
    transaction_two_phase_commit_enable: bool = False
    """`transaction.two.phase.commit.enable`: whether a client may request transactions without a timeout (row T22)."""
    timeout_check_interval_ms: int = 500
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`: how often open transactions are checked against
    their timeouts. With Kafka's 10 s a timeout of 2 s may last for 12 s; the broker uses half a second at most."""
    id_expiration_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`: how often ids are checked for expiry."""
    completion_wait_ms: int = 5_000
    """How long a request waits for the previous transaction's markers before it fails with CONCURRENT_TRANSACTIONS."""
    marker_retry_backoff_ms: int = 20
    """The first pause before failed markers are retried; doubled up to `marker_retry_backoff_max_ms`."""
    marker_retry_backoff_max_ms: int = 1_000
    max_transactional_ids: int = 1_000_000
    """The most ids the coordinator keeps; a further one is refused with POLICY_VIOLATION."""
    principal_max_transactional_ids: int = -1
    """`principal.max.transactional.ids`: the most ids of one principal; -1 for no bound."""
    principal_max_open_transactions: int = -1
    """`principal.max.open.transactions`: the most open transactions of one principal; -1 for no bound."""
    principal_max_producer_ids: int = -1
    """`principal.max.producer.ids`: the most producer ids that one principal may get without a transactional id within
    `producer_id_expiration_ms`; -1 for no bound."""
    producer_id_expiration_ms: int = 86_400_000
    """`producer.id.expiration.ms`."""
    max_partitions_per_transaction: int = 100_000
    """The most partitions of one transaction; more are refused with POLICY_VIOLATION."""

    def change_to(self, other: "TxnConfig") -> None:
        """Take the settings of `other`."""
        for setting in fields(self):
            setattr(self, setting.name, getattr(other, setting.name))

    def marker_pauses(self) -> Iterator[float]:
        """Seconds to wait before each further try of a marker, without end, doubled up to the longest."""
        pause_ms = self.marker_retry_backoff_ms
        while True:
            yield pause_ms / 1000
            pause_ms = min(2 * pause_ms, self.marker_retry_backoff_max_ms)
