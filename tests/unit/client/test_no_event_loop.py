"""The client where no event loop runs: the error says what to use instead."""

import pytest

import fencepost
from fencepost import FatalError

ADVICE = r"needs an event loop.*`asyncio\.run` or `trio\.run`.*`from fencepost\.sync import Client`"


def test_without_an_event_loop_the_error_names_the_blocking_client() -> None:
    with pytest.raises(FatalError, match=ADVICE):
        fencepost.Client("127.0.0.1:1").__aenter__().send(None)


def test_a_with_without_async_too() -> None:
    with pytest.raises(FatalError, match=ADVICE), fencepost.Client("127.0.0.1:1"):
        pass
