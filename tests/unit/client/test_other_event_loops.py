"""The client where trio does not run: the error says what to use instead."""

import asyncio

import pytest

import fencepost
from fencepost import FatalError

ADVICE = r"runs under trio.*`from fencepost\.sync import Client`.*`asyncio\.to_thread`"


def test_under_asyncio_the_error_names_the_blocking_client() -> None:
    async def main() -> None:
        async with fencepost.Client("127.0.0.1:1"):
            pass

    with pytest.raises(FatalError, match=ADVICE):
        asyncio.run(main())


def test_without_an_event_loop_too() -> None:
    with pytest.raises(FatalError, match=ADVICE):
        fencepost.Client("127.0.0.1:1").__aenter__().send(None)


def test_a_with_without_async_too() -> None:
    with pytest.raises(FatalError, match=ADVICE), fencepost.Client("127.0.0.1:1"):
        pass
