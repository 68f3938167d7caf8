"""What works on a cluster while it is broken: writers, transforms and readers by client."""

from dataclasses import dataclass

from tests.kit.history import Place
from tests.kit.workload_run import Plan
from tests.kit.workload_writers import LOOSE_TOPIC, TRANSACTION_TOPIC

TRANSFORM, OWN_TRANSFORM = "copy1", "copy2"


@dataclass(frozen=True, kw_only=True)
class ClusterPlan(Plan):
    """Only librdkafka, because the own client shares code with the broker; or that, Java's and kafka-python, too."""

    all_clients: bool = False

    @property
    def roles(self) -> list[tuple[str, str]]:
        loose = [("loose1", "loose1"), ("reads1", "reads1")]
        found = [*(("tv1", f"tv1-{number}") for number in range(self.transactional)), (TRANSFORM, "copy1-0"), *loose]
        if self.all_clients:
            found += [(role, f"{role}-0") for role in ("tv2", "java", "kafka-python", OWN_TRANSFORM)]
            found += [(role, role) for role in ("loose2", "reads2")]
        return found

    @property
    def outputs(self) -> list[str]:
        """The topics that transforms write."""
        return [TRANSFORM, *[OWN_TRANSFORM] * self.all_clients]

    @property
    def places(self) -> list[Place]:
        topics = (TRANSACTION_TOPIC, LOOSE_TOPIC, *self.outputs)
        return [(topic, number) for topic in topics for number in range(self.partitions)]
