"""The supported features with their levels, and the rules for changing them (KIP-584, KIP-1022). Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, FeatureUpdate, Outcome
from fencepost.coordinator.metadata.image import (
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    MetadataImage,
)
from fencepost.protocol.admin_enums import UpgradeType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import FeatureLevelRecord, MetadataRecord

METADATA_LEVELS = MappingProxyType(
    {
        7: ("3.3-IV3", False),
        8: ("3.4-IV0", True),
        9: ("3.5-IV0", False),
        10: ("3.5-IV1", False),
        11: ("3.5-IV2", True),
        12: ("3.6-IV0", False),
        13: ("3.6-IV1", True),
        14: ("3.6-IV2", True),
        15: ("3.7-IV0", True),
        16: ("3.7-IV1", True),
        17: ("3.7-IV2", True),
        18: ("3.7-IV3", False),
        19: ("3.7-IV4", False),
        20: ("3.8-IV0", False),
        21: ("3.9-IV0", False),
        22: ("4.0-IV0", False),
        23: ("4.0-IV1", True),
        24: ("4.0-IV2", False),
        25: ("4.0-IV3", False),
    }
)
"""The levels of metadata.version whose records the broker can write: name, and whether the records changed with it.

Level 11 brought SCRAM users, 13 transactions (KIP-868), 17 the directories of partitions (KIP-858), 23 eligible leader
replicas (KIP-966)."""
SCRAM_SINCE, TRANSACTIONS_SINCE, DIRECTORIES_SINCE, ELIGIBLE_REPLICAS_SINCE = 11, 13, 17, 23
SUPPORTED: Mapping[str, tuple[int, int]] = MappingProxyType(
    {METADATA_VERSION: (7, 25), TRANSACTION_VERSION: (0, 2), GROUP_VERSION: (0, 1), SHARE_VERSION: (0, 2)}
)
"""The lowest and the highest level of each feature that this broker supports."""


def bootstrap_levels() -> Mapping[str, int]:
    """What a new cluster finalizes, metadata.version first: the highest levels, as Kafka (`Feature.defaultLevel`).

    A cluster with older metadata keeps its levels until UpdateFeatures raises them.
    """
    return {name: highest for name, (_, highest) in SUPPORTED.items()}


class FeatureView(NamedTuple):
    """The features in ApiVersions: supported ranges, finalized levels, and the epoch of the latter (a log offset)."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


def update_features(
    image: MetadataImage, updates: Sequence[FeatureUpdate], validate_only: bool = False
) -> Decision[MetadataRecord, Outcome, None]:
    """Make all updates or none; the outcome is that of the first refused one."""
    names = [update.name for update in updates]
    if len(set(names)) < len(names):
        return Decision(Outcome(ErrorCode.INVALID_REQUEST, "A feature is named more than once."))
    for update in updates:
        problem = _problem(image, SUPPORTED, update)
        if problem is not None:
            text = f"Invalid update version {update.level} for feature {update.name}. {problem}"
            return Decision(Outcome(ErrorCode.INVALID_UPDATE_VERSION, text))
    records = tuple(FeatureLevelRecord(update.name, update.level) for update in updates)
    return Decision(DONE, () if validate_only else records)


def _problem(image: MetadataImage, levels: Mapping[str, tuple[int, int]], update: FeatureUpdate) -> str | None:
    if update.upgrade_type not in list(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.name not in levels:
        return "The feature is not known to this broker."
    lowest, highest = levels[update.name]
    if update.level != 0 and not lowest <= update.level <= highest:
        return f"This broker supports versions {lowest} to {highest}."
    current = image.features.get(update.name, 0)
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if update.name == METADATA_VERSION:
        return _metadata_version_problem(update.level, current, update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE)
    return None


def _metadata_version_problem(level: int, current: int, unsafe: bool) -> str | None:
    """Why metadata.version cannot change to `level`, or None.

    An unsafe downgrade drops the data that the level does not know; Kafka has announced that, but still refuses it.
    """
    if level not in METADATA_LEVELS:
        return "Unknown metadata.version."
    if unsafe:
        return None
    changed = any(METADATA_LEVELS[between][1] for between in range(level + 1, current + 1))
    if changed:
        return "Refusing to perform the requested downgrade because it might delete metadata information."
    return None


def loses_transactions(image: MetadataImage, updates: Sequence[FeatureUpdate]) -> bool:
    """Whether these updates of `image` lower metadata.version below the level that introduced transactions."""
    before = image.features.get(METADATA_VERSION, 0)
    return before >= TRANSACTIONS_SINCE and any(
        update.name == METADATA_VERSION and 0 < update.level < TRANSACTIONS_SINCE for update in updates
    )
