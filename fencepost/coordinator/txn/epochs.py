"""The arithmetic of producer epochs: bump, exhaustion, rotation to a fresh producer id (rows P6, P12, T10)."""

from dataclasses import replace

from fencepost.coordinator.txn.state import NO_EPOCH, NO_PRODUCER_ID, Ongoing, Prepared, Producer, holder

MAX_EPOCH = 32767
"""The largest int16. No client receives it: it is reserved for the marker of a producer id's last transaction."""

LAST_CLIENT_EPOCH = MAX_EPOCH - 1


def is_exhausted(epoch: int) -> bool:
    """Whether no client may receive an epoch after this one (row P12)."""
    return epoch >= LAST_CLIENT_EPOCH


def first(producer_id: int) -> Producer:
    """The identity of a producer whose transactional id was unknown before.

    The previous producer id is the new one, as in Kafka, so that both write the same bytes.
    """
    return Producer(producer_id, 0, previous_producer_id=producer_id, last_epoch=NO_EPOCH)


def bumped(producer: Producer, *, same_client: bool) -> Producer:
    """The next epoch of the same producer id, at most MAX_EPOCH.

    `same_client`: the holder of the epoch before receives the new one when it retries, instead of being fenced.
    """
    return Producer(
        producer.producer_id,
        min(producer.epoch + 1, MAX_EPOCH),
        previous_producer_id=producer.producer_id,
        last_epoch=producer.epoch if same_client else NO_EPOCH,
    )


def rotated(producer: Producer, fresh_producer_id: int, *, same_client: bool) -> Producer:
    """The first epoch of a fresh producer id, for a client that has used up the epochs of its old one."""
    return Producer(
        fresh_producer_id,
        0,
        previous_producer_id=producer.producer_id,
        last_epoch=producer.epoch if same_client else NO_EPOCH,
    )


def completed(producer: Producer, next_producer_id: int, next_producer_epoch: int) -> Producer:
    """The identity after the markers: the same, or the one reserved when the transaction was ended.

    `last_epoch` stays the one that the client last received (32766), not the markers' (32767): its retry shows the
    former. `previous_producer_id` stays likewise, except in a record of Kafka's: it lacks both, so the markers' id is
    used.
    """
    if next_producer_id == NO_PRODUCER_ID:
        return producer
    known = producer.last_epoch != NO_EPOCH
    return replace(
        producer,
        producer_id=next_producer_id,
        epoch=max(next_producer_epoch, 0),
        previous_producer_id=producer.previous_producer_id if known else producer.producer_id,
    )


def ended(state: Ongoing, *, same_client: bool) -> Producer:
    """The identity of the markers that end `state`: one epoch above the records, which no client has written under.

    `same_client`: the holder itself ended the transaction, and may retry with the identity it showed.
    """
    producer = bumped(state.producer, same_client=same_client)
    if not state.is_kept:
        return producer
    held_id, held_epoch = holder(state)
    return replace(producer, previous_producer_id=held_id, last_epoch=held_epoch if same_client else NO_EPOCH)


def following(state: Ongoing, fresh_producer_id: int | None) -> tuple[int, int] | None:
    """The identity after the one that holds `state`; None if its epochs are used up and there is no fresh id.

    It is for the successor that keeps a transaction, and for the producer after the end of one. It is one epoch above
    the holder's, so that a late copy of the request that ended it matches no later transaction (KIP-939, row T23).
    If the producer id changes at the end of an ordinary transaction, NO_EPOCH stands for 0, as Kafka writes it.
    """
    producer_id, epoch = holder(state)
    if not is_exhausted(epoch):
        return producer_id, epoch + 1
    return None if fresh_producer_id is None else (fresh_producer_id, 0 if state.is_kept else NO_EPOCH)


def ended_by(state: Prepared) -> tuple[int, int]:
    """The identity in the request that ended the transaction under TV2; its retry shows the same."""
    producer = state.producer
    if producer.last_epoch != NO_EPOCH:
        return producer.previous_producer_id, producer.last_epoch
    return producer.producer_id, producer.epoch - 1


def is_retry_over_rotation(producer: Producer, producer_id: int, epoch: int) -> bool:
    """Whether this is a retry of the EndTxn that used up the identity's last epoch (row T7)."""
    return (
        producer.epoch == 0
        and producer_id != producer.producer_id
        and producer_id == producer.previous_producer_id
        and epoch == LAST_CLIENT_EPOCH
    )
