"""Other people's clients on a broker with PostgreSQL and objects: a part of tests/interop.

All of it, and Spark's tests: `FENCEPOST_ENGINE=cluster make test ARGS="tests/interop tests/spark"`.
"""

import pytest

from tests.kit.chosen_clients import run_chosen


@pytest.mark.interop
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("server")
def test_clients_of_others_work_with_a_shared_store() -> None:
    """Transactions, groups and administration; skipped where there is no PostgreSQL."""
    run_chosen("cluster")
