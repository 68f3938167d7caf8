"""A chaos run: writers, transforms and readers work while broker and producers are killed and frozen, then a verdict.

    python -m tests.kit.workload --seconds 300 --seed 7

The seed decides what is written and which faults come in which order; what the faults meet is up to the machine.
"""

import sys
from collections.abc import Sequence
from functools import partial

from tests.kit.history import Verdict
from tests.kit.workload_command import carry_out, parser_of
from tests.kit.workload_run import Plan, Run


def _report(run: Run, verdict: Verdict, seconds: float) -> str:
    facts = [f"faults: {dict(run.faults)}", f"checked: {dict(verdict.counts)}"]
    facts.append(f"open transactions were gone {run.settle_seconds:.1f} s after their writers' death")
    facts.append(f"took {seconds:.0f} s")
    word = "VIOLATED" if verdict.violations else "exactly-once held"
    again = f"python -m tests.kit.workload --seconds {run.plan.seconds:g} --seed {run.plan.seed}"
    again += f" --durability {run.plan.durability} --transactional {run.plan.transactional}"
    again += f" --transforms {run.plan.transforms}" + ("" if run.plan.bad_network else " --good-network")
    return "\n".join([f"{word} durability={run.plan.durability}", *verdict.violations, *facts, f"again: {again}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a run and its verdict; 1 on a violation."""
    parser = parser_of("tests.kit.workload", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--transactional", type=int, default=2)
    parser.add_argument("--transforms", type=int, default=2)
    parser.add_argument("--good-network", action="store_true", help="clients reach the broker itself")
    parser.add_argument("--timeout-ms", type=int, default=4000)
    arguments = parser.parse_args(argv)
    plan = Plan(
        seconds=arguments.seconds,
        seed=arguments.seed,
        durability=arguments.durability,
        partitions=arguments.partitions,
        timeout_ms=arguments.timeout_ms,
        transactional=arguments.transactional,
        transforms=arguments.transforms,
        bad_network=not arguments.good_network,
    )
    return carry_out(partial(Run, plan), arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
