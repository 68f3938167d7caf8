"""The database of a cluster in this process, which is gone for some methods as long as a test wants."""

from collections.abc import Collection

from fencepost.broker.cluster.engine import StoreUnavailable
from tests.kit.engine_worlds import SimWorld
from tests.kit.sim_engine import SimEngine


class FadingDatabase:
    """Raises StoreUnavailable in the methods of `gone`."""

    def __init__(self) -> None:
        self.world = SimWorld()
        self.gone: Collection[str] = ()
        self.refused: set[str] = set()
        """The methods that were called while they were gone."""

    def connect(self) -> SimEngine:
        """A connection of one broker."""
        engine = self.world.engine()
        engine.before = self._before
        return engine

    def _before(self, method: str) -> None:
        if method in self.gone:
            self.refused.add(method)
            raise StoreUnavailable("the database is gone")
