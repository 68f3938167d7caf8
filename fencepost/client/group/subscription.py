"""A consumer's subscription: topics by name, or all topics whose whole name matches a pattern."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.client.core.partitions import check_topic_name
from fencepost.client.errors import ConfigError
from fencepost.client.network.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name, and a pattern that matches the whole name of others.

    The client matches with Python's `re` (no group, or the classic protocol); with KIP-848 the broker matches with RE2.
    Use only what both support.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        return ", ".join(self.topics) if self.pattern is None else f"topics that match {self.pattern!r}"

    def fits(self, name: str) -> bool:
        """Whether the subscription includes the topic."""
        return name in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, name) is not None)


def wanted_topics(subscription: Subscription, cluster: Cluster) -> set[str]:
    """The topics of a subscription that the client knows; those by name even if they do not exist."""
    found = set(subscription.topics)
    if subscription.pattern is not None:
        found |= {name for name, topic in cluster.topics.items() if not topic.internal and subscription.fits(name)}
    return found


Topics = str | Iterable[str] | re.Pattern[str]
"""A topic's name, several names, or a compiled pattern."""


def subscription_to(topics: Iterable[Topics], pattern: str | re.Pattern[str] | None) -> Subscription:
    """A program's subscription.

    Raises ConfigError for neither or both of topics and pattern and for a bad pattern, TypeError for another type.
    """
    names: list[str] = []
    patterns = [] if pattern is None else [pattern]
    for one in topics:
        if isinstance(one, re.Pattern):
            patterns.append(one)
        elif isinstance(one, str) or not isinstance(one, Iterable):
            names.append(one)
        else:
            names += one
    if bool(names) + len(patterns) != 1:
        raise ConfigError("subscribe to topics or to one pattern, and not to both")
    for name in names:
        check_topic_name(name)
    return Subscription(pattern=_checked(patterns[0])) if patterns else Subscription(tuple(dict.fromkeys(names)))


def _checked(pattern: str | re.Pattern[str]) -> str:
    text = pattern if isinstance(pattern, str) else pattern.pattern
    try:
        flags = re.compile(text).flags
    except (re.error, TypeError) as wrong:
        raise ConfigError(f"pattern {text!r}: {wrong}") from None
    if not isinstance(text, str) or (isinstance(pattern, re.Pattern) and pattern.flags != flags):
        raise ConfigError(f"pattern {text!r}: it must be text, with its flags inside, such as (?i)")
    return text
