"""Connections to one broker that outlive its crashes."""

from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire


class Connections:
    """Connections to one broker, made again after it was killed, and closed at the end."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._open: list[Wire] = []

    def new(self) -> Wire:
        """One more connection."""
        self._open.append(Wire(self.broker.connect()))
        return self._open[-1]

    def close(self) -> None:
        """Close all."""
        for wire in self._open:
            wire.close()
        self._open.clear()

    def after_crash(self) -> Wire:
        """Kill the broker, start it again, connect."""
        self.close()
        self.broker.restart()
        return self.new()
