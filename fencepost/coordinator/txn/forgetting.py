"""Ids that nobody has used for long are forgotten, with tombstones in their log (row T12)."""

import logging

import trio

from fencepost.coordinator.ports import LogWriteFailed
from fencepost.coordinator.txn.books import Books
from fencepost.coordinator.txn.stories import Stories

logger = logging.getLogger(__name__)


async def forget_the_unused(books: Books, stories: Stories) -> None:
    """Look every `id_expiration_interval_ms`, until cancelled; what a log refuses is tried again the next time."""
    while True:
        await trio.sleep(books.config.id_expiration_interval_ms / 1000)
        for shard in books.shards():
            try:
                for tombstones in books.tombstones(shard):
                    end_offset = shard.write(tombstones)
                    stories.expired(tombstones)
                    await shard.log.durable(end_offset)
                    await trio.lowlevel.checkpoint()
            except LogWriteFailed as error:
                logger.warning("unused transactional ids could not be removed: %s", error)
