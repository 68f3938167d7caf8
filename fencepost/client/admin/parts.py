"""The parts of an admin client: one for each kind of thing."""

from fencepost.client.admin.cluster import ClusterAdmin
from fencepost.client.admin.configs import ConfigAdmin
from fencepost.client.admin.groups import GroupAdmin
from fencepost.client.admin.offsets import OffsetAdmin
from fencepost.client.admin.plans import PlanAdmin
from fencepost.client.admin.replicas import ReplicaAdmin
from fencepost.client.admin.requests import AdminRequests
from fencepost.client.admin.security import SecurityAdmin
from fencepost.client.admin.share_groups import ShareGroupAdmin
from fencepost.client.admin.topics import TopicAdmin
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.network.cluster import Cluster


class AdminParts:
    """The parts of `Admin`. They share the requests; only plans use another part (topics)."""

    def __init__(self, cluster: Cluster, purpose: str) -> None:
        rpc = AdminRequests(cluster, purpose)
        self.cluster = cluster
        self.topics = TopicAdmin(rpc)
        self.plans = PlanAdmin(rpc, self.topics)
        self.offsets = OffsetAdmin(rpc)
        self.configs = ConfigAdmin(rpc)
        self.groups = GroupAdmin(rpc)
        self.share_groups = ShareGroupAdmin(rpc)
        self.transactions = TransactionAdmin(rpc)
        self.brokers = ClusterAdmin(rpc)
        self.replicas = ReplicaAdmin(rpc)
        self.security = SecurityAdmin(rpc)

    def now_ms(self) -> int:
        return round(self.cluster.wall_clock() * 1000)
