"""The blocking client has types, and they are those of the async one."""

from pathlib import Path

from tests.architecture.sync_stub import STUB, stub
from tests.kit.type_checker import assert_mypy_says

PROGRAM = """
from fencepost.sync import Client

with Client("127.0.0.1:9092", timeout=3.0) as kafka, kafka.consumer("t", group="g") as consumer:
    for batch in consumer.batches(max_records=5):
        with kafka.transactional_producer("x") as producer, producer.transaction() as txn:
            txn.send_many("u", ((record.key, record.value) for record in batch))
            txn.send_offsets(consumer)
    for record in consumer:
        reveal_type(record.offset)  # says: Revealed type is "int"
    with kafka.admin() as admin:
        reveal_type(admin.list_topics())  # says: Revealed type is "list[str]"
        admin.lst_topics()  # says: has no attribute "lst_topics"
        admin.delete_groups(3)  # says: incompatible type "int"; expected "str
"""


def test_the_stub_says_what_the_async_client_says() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "python -m tests.architecture.sync_stub writes it anew"


def test_a_type_checker_finds_what_is_wrong_in_a_program_without_trio(tmp_path: Path) -> None:
    assert_mypy_says(PROGRAM, tmp_path)
