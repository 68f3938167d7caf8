"""The APIs that a broker serves without `unstable.api.versions.enable`."""

from collections.abc import Mapping

from fencepost.protocol.registry import API_BY_KEY, Api

STABLE_APIS: Mapping[int, Api] = {key: api for key, api in API_BY_KEY.items() if api.served[0] <= api.served[1]}
