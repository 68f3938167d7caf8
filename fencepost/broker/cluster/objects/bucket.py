"""Objects in a bucket of S3, Google Cloud Storage or Azure, through obstore; and in memory, for tests."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

# Not everyone who checks types has the extra installed.
import obstore  # type: ignore[import-not-found, unused-ignore]
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError  # type: ignore[import-not-found, unused-ignore]
from obstore.store import MemoryStore, from_url  # type: ignore[import-not-found, unused-ignore]

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.log.storage.store import Bytes

CONNECT_TIMEOUT_S = 5.0
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 2.0
RETRIES_MAX = 20
"""Never reached: the time for retries ends before."""
ENDPOINT_OPTIONS = ("aws_endpoint_url_s3", "endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
RANGE_ERRORS = ("StartTooLarge", "416 Range Not Satisfiable")

NO_CONDITION = "501 Not Implemented"
"""What a store says that does not know `If-None-Match: *`. Others ignore it."""

NO_BUCKET = ("NoSuchBucket", "bucket does not exist", "ContainerNotFound")
"""What S3, Google and Azure say if not only the object is missing."""


logger = logging.getLogger(__name__)


class Bucket:
    """A `Backend` in obstore's sync API, which holds no lock of Python's while it waits.

    obstore repeats requests that failed with a status from 500 on, by a broken connection or by a timeout.
    """

    def __init__(self, store: Any, place: str) -> None:
        self._store = store
        self._place = place
        self._creates = True
        """Whether the store can refuse to replace an object."""

    @classmethod
    def open(cls, url: str, options: Mapping[str, str], request_timeout_s: float, retry_s: float) -> "Bucket":
        """The bucket and folder at `url`. Raises ValueError if the URL or an option is wrong."""
        if url.startswith("memory://"):
            return cls(MemoryStore(), url)
        client = {
            "timeout": timedelta(seconds=request_timeout_s),
            "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, request_timeout_s)),
            "allow_http": _endpoint(options).startswith("http://"),
        }
        retry = {
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=retry_s),
            "backoff": {
                "init_backoff": timedelta(seconds=BACKOFF_S_MIN),
                "max_backoff": timedelta(seconds=BACKOFF_S_MAX),
                "base": 2,
            },
        }
        config: Any = dict(options)
        try:
            return cls(from_url(url, config=config, client_options=client, retry_config=retry), url)  # type: ignore[call-overload, unused-ignore]
        except (BaseError, ValueError) as error:
            raise ValueError(f"{url}: {_reason(error)}") from error

    def write(self, name: str, parts: Sequence[Bytes], replace: bool = False) -> None:
        """As the port says: one request, because an interrupted multipart upload would leave parts that cost money."""
        mode: Any = "create" if self._creates and not replace else "overwrite"
        try:
            obstore.put(self._store, name, parts, use_multipart=False, mode=mode)
        except AlreadyExistsError as error:
            raise FileExistsError(f"{name} exists") from error
        except (BaseError, OSError) as error:
            if mode == "create" and (isinstance(error, NotSupportedError) or NO_CONDITION in str(error)):
                logger.warning("%s cannot refuse to replace an object: only its random name protects it", self._place)
                self._creates = False
                return self.write(name, parts)
            raise self._unavailable(error, "put", name) from error

    def read(self, name: str, position: int, size: int) -> bytes:
        try:
            return bytes(obstore.get_range(self._store, name, start=position, length=size))
        except FileNotFoundError as error:
            if any(text in str(error) for text in NO_BUCKET):
                raise self._unavailable(error, "get", name) from error
            raise
        except (BaseError, OSError) as error:
            if any(text in str(error) for text in RANGE_ERRORS):
                return b""
            raise self._unavailable(error, "get", name) from error

    def remove(self, names: Sequence[str]) -> None:
        try:
            obstore.delete(self._store, list(names))
        except FileNotFoundError as error:  # Google and Azure say so; what comes after it in the list may be there
            if any(text in str(error) for text in NO_BUCKET):
                raise self._unavailable(error, "delete", names[0]) from error
            for name in names if len(names) > 1 else ():
                self.remove([name])
        except (BaseError, OSError) as error:
            raise self._unavailable(error, "delete", names[0]) from error

    def names(self) -> Iterator[str]:
        try:
            for page in obstore.list(self._store):
                yield from (str(found["path"]) for found in page)
        except (BaseError, OSError) as error:
            raise self._unavailable(error, "list", "objects") from error

    def _unavailable(self, error: Exception, action: str, name: str) -> StoreUnavailable:
        return StoreUnavailable(f"cannot {action} {name} in the object store {self._place}: {_reason(error)}")


def _endpoint(options: Mapping[str, str]) -> str:
    """The URL of the object store if it is not the cloud's own."""
    named = [options[name] for name in ENDPOINT_OPTIONS if name in options]
    return (named + [os.environ[name] for name in ENDPOINT_VARIABLES if name in os.environ] + [""])[0]


def _reason(error: Exception) -> str:
    """The text in one line, without the part for the authors of obstore."""
    return " ".join(str(error).partition("Debug source:")[0].split())
