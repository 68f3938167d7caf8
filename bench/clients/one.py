"""One run of one client in a process of its own: its job as JSON on the command line, what it came to on stdout."""

import json
import resource
import sys
from importlib import import_module
from pathlib import Path

from bench.clients.job import ClientBench, Job

CLIENTS = {
    "confluent-kafka": ("with_confluent", "Confluent"),
    "aiokafka": ("with_aiokafka", "Aiokafka"),
    "kafka-python": ("with_kafka_python", "KafkaPython"),
    "fencepost": ("with_fencepost", "Fencepost"),
    "fencepost-pure": ("with_fencepost", "Fencepost"),
}
"""By name; `fencepost-pure` is the same in an environment that forbids the compiled part."""


def client_of(name: str) -> ClientBench:
    """The client called so; its library is imported only now."""
    module, kind = CLIENTS[name]
    client: ClientBench = getattr(import_module(f"bench.clients.{module}"), kind)()
    return client


def peak_mebibytes() -> float:
    """The most memory this program had. On Linux `getrusage` also counts what its parent had before `exec`."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="ascii").splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> int:
    """Run the job; 3 where this client has no such thing."""
    client, job = client_of(sys.argv[1]), Job(**json.loads(sys.argv[2]))
    try:
        outcome = client.run(job)
    except NotImplementedError as error:
        print(error, file=sys.stderr)
        return 3
    figures = outcome.figures() | {"MiB": peak_mebibytes()}
    print(json.dumps({"version": client.version(), "records": outcome.records, "figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
