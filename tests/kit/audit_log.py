"""What a broker process has written to its audit log; it needs `--log-format json`."""

import json

from tests.kit.broker_process import BrokerProcess


class Audit:
    """The lines of the audit log since this object was made."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._before = len(self._all())

    def _all(self) -> list[str]:
        entries = [json.loads(line) for line in self._broker.log().splitlines()]
        return [entry["message"] for entry in entries if entry["logger"] == "fencepost.audit"]

    @property
    def lines(self) -> list[str]:
        return self._all()[self._before :]
