"""Replaces segments by their compacted copy, so that a crash leaves either the old segments or the new one.

The steps are, each durable before the next: write the new files as `.cleaned`; rename all of them to `.swap`, which
makes the new segment valid; delete the old segments and give the new indexes their own names; give the `.log.swap` its
own name. At a start the broker finishes the swap if there is a `.log.swap`, and deletes a `.cleaned` without one. Kafka
uses the same names: each of the two brokers finishes the other's swaps.
"""

import logging
from collections.abc import Callable, Collection, Generator, Sequence

from fencepost.broker.log.log_store import Conflict
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, file_name, offset_in_name
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import CorruptLogFile, Store, SyncTask

CLEANED = ".cleaned"
SWAP = ".swap"

_BESIDE_THE_LOG = tuple(suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG_SUFFIX)

logger = logging.getLogger(__name__)


def swap_in(
    segments: Segments, old: Sequence[Segment], new: Segment, later: Callable[[Collection[SyncTask]], None]
) -> Generator[list[SyncTask], None, Conflict | None]:
    """Replace `old` by `new`, whose files end in `.cleaned` and are durable; yields what the caller must sync.

    Readers see `new` from the first step on. Between two steps only appends, rolls, retention and deletion may change
    the log. If the caller stops early, the next start finishes the swap. `later` frees the bytes of `old`. Raises
    OSError: before the first sync nothing has changed; after it the log still works, and the next start finishes the
    swap.
    """
    conflict = _rename_and_replace(segments, old, new)
    if conflict is not None:
        return conflict
    store = segments.store
    yield store.entry_targets()
    removals = [removal for segment in old for removal in segment.removals()]
    if _is_in(segments, new):  # otherwise retention removed it meanwhile, and it must not come back
        for suffix in _BESIDE_THE_LOG:
            new.rename(suffix, "")
    yield store.entry_targets()
    later(removals)
    if _is_in(segments, new):
        new.rename(LOG_SUFFIX, "")
    yield store.entry_targets()
    return None


def _rename_and_replace(segments: Segments, old: Sequence[Segment], new: Segment) -> Conflict | None:
    try:
        for suffix in (*_BESIDE_THE_LOG, LOG_SUFFIX):
            new.rename(suffix, SWAP)
    except OSError:
        new.delete()
        raise
    conflict = segments.replace(old, new)
    if conflict is not None:
        new.delete()
    return conflict


def finish_swaps(store: Store) -> None:
    """At a start: finish every swap whose `.log.swap` exists. Raises OSError."""
    names = set(store.sizes())
    begun = sorted(base for name in names if (base := offset_in_name(name, LOG_SUFFIX + SWAP)) is not None)
    for base in begun:
        end_offset = _end_of(store, base)
        logger.info("finishing a compaction that a crash interrupted: %s from offset %d on", store.place, base)
        for suffix in SEGMENT_SUFFIXES:
            for name in names:
                other = offset_in_name(name, suffix)
                if other is not None and base < other < end_offset:
                    store.remove(name)
        for suffix in _BESIDE_THE_LOG:
            for ending in (SWAP, CLEANED):  # the names may have become durable one by one
                if file_name(base, suffix) + ending in names:
                    store.rename(file_name(base, suffix) + ending, file_name(base, suffix))
                    break
        _sync(store)
        store.rename(file_name(base, LOG_SUFFIX) + SWAP, file_name(base, LOG_SUFFIX))
        _sync(store)


def _end_of(store: Store, base: int) -> int:
    """The offset after the last batch of an interrupted swap's segment: compaction keeps the batch before its end."""
    swapped = Segment(store, base, ending=SWAP)
    end_offset = base + 1
    try:
        for step in swapped.walk(0):
            end_offset = step.last_offset + 1
    except CorruptLogFile as error:
        logger.warning("a compacted segment is damaged: %s", error)
    swapped.close()
    return end_offset


def _is_in(segments: Segments, segment: Segment) -> bool:
    return any(other is segment for other in segments)


def _sync(store: Store) -> None:
    for target in store.entry_targets():
        target.sync()
