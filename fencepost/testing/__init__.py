"""The broker inside a test: `Broker` runs it in this process, with a clock to advance, faults to add, logs to inspect.

The pytest plugin (`fencepost.testing.plugin`) provides it as a fixture. Names are imported on first use: pytest loads
the plugin at each start, also in runs that need no broker.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.testing.broker import Broker as Broker
    from fencepost.testing.cluster import Cluster as Cluster
    from fencepost.testing.exactly_once import By as By
    from fencepost.testing.faults import Fault as Fault
    from fencepost.testing.faults import Moment as Moment
    from fencepost.testing.faults import Step as Step
    from fencepost.testing.faults import Then as Then
    from fencepost.testing.inspection import GroupView as GroupView
    from fencepost.testing.log_view import Batch as Batch
    from fencepost.testing.log_view import LoggedRecord as LoggedRecord
    from fencepost.testing.log_view import LogView as LogView
    from fencepost.testing.log_view import Verdict as Verdict
    from fencepost.testing.loop_thread import BrokerGoneError as BrokerGoneError
    from fencepost.testing.lso_holders import HeldPartition as HeldPartition
    from fencepost.testing.lso_holders import OpenTransaction as OpenTransaction

_HOME = {
    "Batch": "log_view",
    "Broker": "broker",
    "BrokerGoneError": "loop_thread",
    "By": "exactly_once",
    "Cluster": "cluster",
    "Fault": "faults",
    "GroupView": "inspection",
    "HeldPartition": "lso_holders",
    "LogView": "log_view",
    "LoggedRecord": "log_view",
    "Moment": "faults",
    "OpenTransaction": "lso_holders",
    "Step": "faults",
    "Then": "faults",
    "Verdict": "log_view",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost.testing' has no attribute {name!r}")
    import gc
    from importlib import import_module

    from fencepost.extras import needed_for

    collects = gc.isenabled()
    gc.disable()  # what is imported stays alive: to look for garbage in it took a tenth of the time
    try:
        with needed_for("fencepost.testing"):
            found = getattr(import_module(f"fencepost.testing.{home}"), name)
    finally:
        if collects:
            gc.enable()
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
