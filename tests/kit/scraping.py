"""What a broker answers at /metrics."""

import urllib.request

from tests.kit.broker_process import BrokerProcess

Samples = dict[str, float]


def scrape(broker: BrokerProcess) -> Samples:
    """The value of each sample."""
    with urllib.request.urlopen(f"http://{broker.facts['metrics']}/metrics", timeout=100) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        text = response.read().decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}
