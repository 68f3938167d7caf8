"""Plans a query again when a partition goes while it is planned."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fencepost.spark_connector.network.wire import PartitionGone

log = logging.getLogger(__name__)

_PLANS_MAX = 10
T = TypeVar("T")
P = ParamSpec("P")


def planned_anew(plan: Callable[P, T]) -> Callable[P, T]:
    """Plan again if a partition goes meanwhile: a query of a pattern has topics that come and go."""

    @functools.wraps(plan)
    def until_planned(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_PLANS_MAX):
            try:
                return plan(*args, **kwargs)
            except PartitionGone as error:
                log.info("the query is planned again: %s", error)
        return plan(*args, **kwargs)

    return until_planned
