"""API key -> name, message file and versions: the APIs that the broker serves, and those that only the client uses."""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from fencepost.protocol.api_keys import SERVED, ApiKey, Versions
from fencepost.protocol.schema import NO_VERSION, RequestValue, ResponseValue


@dataclass(frozen=True)
class Api:
    """One API. `served` are the versions that can be decoded, `advertised` those in ApiVersions.

    A few versions below Kafka 4's minimum are served, but advertised only to clients that need them
    (`reported_to_old_clients`). Produce is advertised from 0 on to all clients, because librdkafka up to 2.11 takes a
    higher minimum for a broker without compression (KAFKA-18659).
    """

    key: ApiKey
    served: tuple[int, int]
    advertised: tuple[int, int]
    flexible_since: int
    unstable: int | None = None
    """A version above `served` that Kafka may still change (its latestVersionUnstable). A broker offers it only with
    `unstable.api.versions.enable`, and the client uses it only if a call needs it."""

    @classmethod
    def of(cls, key: ApiKey, versions: Versions) -> "Api":
        flexible_since = NO_VERSION if versions.flexible_since is None else versions.flexible_since
        return cls(key, versions.served, versions.advertised or versions.served, flexible_since, versions.unstable)

    def with_unstable(self) -> "Api":
        """This API on a broker that offers unstable versions, too."""
        if self.unstable is None:
            return self
        return replace(
            self, served=(self.served[0], self.unstable), advertised=(self.advertised[0], self.unstable), unstable=None
        )

    @cached_property
    def name(self) -> str:
        return self.key.api_name

    @property
    def reported_to_old_clients(self) -> tuple[int, int]:
        """The advertised range for clients that do not work without versions that Kafka 4 dropped."""
        return min(self.served[0], self.advertised[0]), self.advertised[1]

    @property
    def module_name(self) -> str:
        """The last part of the module that declares this API's messages (and of its handler)."""
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in self.name).lstrip("_")
        return f"api{self.key:02d}_{snake}"

    @cached_property
    def module(self) -> ModuleType:
        return import_module(f"fencepost.protocol.messages.{self.module_name}")

    @cached_property
    def request(self) -> type[RequestValue[Any]]:
        message: type[RequestValue[Any]] = getattr(self.module, f"{self.name}Request")
        return message

    @cached_property
    def response(self) -> type[ResponseValue]:
        message: type[ResponseValue] = getattr(self.module, f"{self.name}Response")
        return message

    def serves(self, version: int) -> bool:
        """Whether a request of `version` can be decoded and answered."""
        return self.served[0] <= version <= self.served[1]

    def reads(self, version: int) -> bool:
        """Whether a request of `version` can be decoded, the unstable version included."""
        return self.served[0] <= version <= (self.served[1] if self.unstable is None else self.unstable)

    def request_header_version(self, version: int) -> int:
        """1, or 2 (with tagged fields) for flexible requests (KIP-482)."""
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """0, or 1 for flexible requests; always 0 for ApiVersions: its client does not know the versions yet."""
        return 1 if version >= self._response_flexible_since else 0

    @cached_property
    def _response_flexible_since(self) -> int:
        return NO_VERSION if self.key == ApiKey.API_VERSIONS else self.flexible_since


API_BY_KEY: dict[int, Api] = {key: Api.of(key, versions) for key, versions in SERVED.items()}
"""Every API that the broker serves."""

API_BY_NAME: dict[str, Api] = {api.name: api for api in API_BY_KEY.values()}
