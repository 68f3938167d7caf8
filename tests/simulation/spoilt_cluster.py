"""Clusters with one defect each, to see that the worlds find it. `tests/models` finds those of claims and sessions."""

from collections.abc import Callable

from tests.kit.sim_engine import SimEngine
from tests.simulation.spoilt import answer_before_the_flush


def no_fence() -> None:
    """A broker that was taken over commits as before."""
    SimEngine._check_fence = lambda engine, identity: None  # type: ignore[method-assign]


SPOILT: dict[str, Callable[[], None]] = {
    "answer-before-the-flush": answer_before_the_flush,
    "no-fence": no_fence,
}
"""By the name that `python -m tests.simulation.cluster_world --spoilt` takes."""
