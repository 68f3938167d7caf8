"""The admin client, `Admin`, and the values that its methods take and return.

`Admin` is imported on first use: it needs the whole client, and the command line often needs only the values.
"""

from typing import TYPE_CHECKING, Any

from fencepost.client.admin.cluster_types import (
    BrokerInfo,
    ClusterDescription,
    FeatureLevels,
    LogDir,
    QuorumDescription,
    QuorumReplica,
    Reassignment,
    ReplicaSize,
)
from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.plan_types import Applied, ClusterPlan, PlannedChange, WantedAcl, WantedConfigs, WantedTopic
from fencepost.client.admin.security_types import (
    ANY,
    DEFAULT,
    Acl,
    AclFilter,
    QuotaEntity,
    QuotaName,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from fencepost.client.admin.share_types import RecordRange, RecordStates, ShareGroupOffset
from fencepost.client.admin.types import (
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    GroupMember,
    HangingTransaction,
    HistoryEvent,
    Holder,
    LastStableOffsetInfo,
    NewTopic,
    OffsetInfo,
    ProducerIdentity,
    ProducerState,
    TopicDescription,
    TransactionDescription,
    TransactionHistory,
    TransactionListing,
    Verdict,
    WaitingGroup,
)
from fencepost.client.core.partitions import PartitionInfo
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, ConfigSource, PatternType

if TYPE_CHECKING:
    from fencepost.client.admin.client import Admin
    from fencepost.client.admin.lag import PartitionLag

_HOME = {"Admin": "client", "PartitionLag": "lag"}

__all__ = [
    "ANY",
    "DEFAULT",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "Applied",
    "BrokerInfo",
    "ClusterDescription",
    "ClusterPlan",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "FeatureLevels",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "HistoryEvent",
    "Holder",
    "ItemsFailedError",
    "LastStableOffsetInfo",
    "LogDir",
    "NewTopic",
    "OffsetInfo",
    "PartitionInfo",
    "PartitionLag",
    "PatternType",
    "PlannedChange",
    "ProducerIdentity",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaName",
    "Reassignment",
    "RecordRange",
    "RecordStates",
    "ReplicaSize",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "ShareGroupOffset",
    "TopicDescription",
    "TransactionDescription",
    "TransactionHistory",
    "TransactionListing",
    "Verdict",
    "WaitingGroup",
    "WantedAcl",
    "WantedConfigs",
    "WantedTopic",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost.client.admin' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fencepost.client.admin.{home}"), name)
