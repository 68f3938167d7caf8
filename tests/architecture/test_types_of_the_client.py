"""What mypy says to programs that use the async client: its own subclasses, closed sets of words, missing arguments."""

from pathlib import Path

from tests.kit.type_checker import assert_mypy_says

PROGRAM = """
import fencepost
from fencepost import sync
from fencepost.client.admin import Admin

class Own(fencepost.Client):
    def more(self) -> int:
        return 1

async def own() -> None:
    Own.from_config({}).more()
    async with Own("a") as kafka:
        kafka.more()

async def words(kafka: fencepost.Client, admin: Admin, consumer: fencepost.Consumer[bytes, bytes]) -> None:
    fencepost.Client("a", security_protocol="tls")  # says: Literal['plaintext'
    fencepost.Client("a", sasl_mechanism="SCRAM")  # says: Literal['PLAIN'
    kafka.consumer("t", partition_assignment_strategy="stiky")  # says: Literal['range'
    kafka.consumer("t", partition_assignment_strategy=["sticky", "range"])
    await admin.list_offsets(fencepost.TopicPartition("t", 0), at="begin")  # says: Literal['earliest'
    consumer.transactions(overflow="disk")  # says: Literal['error', 'spill']

async def values(producer: fencepost.Producer[bytes, bytes], blocking: "sync.Producer[bytes, bytes]") -> None:
    await producer.send("t")  # says: Missing positional argument "value"
    await producer.send("t", None)
    await producer.send("t", key=b"k", value=b"v")
    blocking.send("t")  # says: Missing positional argument "value"
"""


def test_a_type_checker_finds_what_is_wrong_in_a_program(tmp_path: Path) -> None:
    assert_mypy_says(PROGRAM, tmp_path)
