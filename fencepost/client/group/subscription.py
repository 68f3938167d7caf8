"""What a consumer subscribes to: topics by name, or all whose whole name fits a pattern."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.client.errors import ConfigError
from fencepost.client.network.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name, and a pattern that the whole name of others must fit.

    The pattern is Python's where the client looks (no group, or the classic protocol), and RE2's where the broker does
    (KIP-848); what is common to both is what programs should write.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        return ", ".join(self.topics) if self.pattern is None else f"topics that fit {self.pattern!r}"

    def fits(self, name: str) -> bool:
        """Whether the topic is wanted."""
        return name in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, name) is not None)

    def among(self, cluster: Cluster) -> set[str]:
        """The wanted topics, as far as is known; those wanted by name also if they do not exist."""
        found = set(self.topics)
        if self.pattern is not None:
            found |= {name for name, topic in cluster.topics.items() if not topic.internal and self.fits(name)}
        return found


def subscription_to(topics: Iterable[str], pattern: "str | re.Pattern[str] | None") -> Subscription:
    """What a program asks for. Raises ConfigError for nothing, for both at once, and for a pattern that is none."""
    names = tuple(dict.fromkeys(topics))
    if bool(names) == (pattern is not None):
        raise ConfigError("subscribe to topics or to a pattern")
    if pattern is None:
        return Subscription(names)
    text = pattern if isinstance(pattern, str) else pattern.pattern
    try:
        re.compile(text)
    except re.error as wrong:
        raise ConfigError(f"pattern {text!r}: {wrong}") from None
    return Subscription(pattern=text)
