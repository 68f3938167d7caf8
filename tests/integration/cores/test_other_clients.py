"""Other people's clients on a broker of three cores: a part of tests/interop.

All of it, and Spark's tests: `FENCEPOST_ENGINE=cores make test ARGS="tests/interop tests/spark"`.
"""

import pytest

from tests.kit.chosen_clients import run_chosen


@pytest.mark.interop
@pytest.mark.timeout(400)
def test_clients_of_others_work_with_cores() -> None:
    """Transactions, groups, share groups and administration."""
    run_chosen("cores", "test_share_consumer.py")
