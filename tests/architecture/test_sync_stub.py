"""The blocking client has types, and they are those of the async one."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.project_files import ROOT
from tests.architecture.sync_stub import STUB, stub

PROGRAM = """
from fencepost.sync import Client

with Client("127.0.0.1:9092", timeout=3.0) as kafka, kafka.consumer("t", group="g") as consumer:
    for batch in consumer.batches(max_records=5):
        with kafka.transactional_producer("x") as producer, producer.transaction() as txn:
            txn.send_many("u", ((record.key, record.value) for record in batch))
            txn.send_offsets(consumer)
    for record in consumer:
        reveal_type(record.offset)
    with kafka.admin() as admin:
        reveal_type(admin.list_topics())
        admin.lst_topics()
        admin.create_topic(name=3)
"""


def test_the_stub_says_what_the_async_client_says() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "python -m tests.architecture.sync_stub writes it anew"


def test_a_type_checker_finds_what_is_wrong_in_a_program_without_trio(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = ["--strict", "--no-incremental", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *words, str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    told = [line.partition("program.py:")[2] for line in run.stdout.splitlines() if "program.py:" in line]
    assert [line.partition(":")[0] for line in told] == ["10", "12", "13", "14"], run.stdout
    assert 'Revealed type is "int"' in told[0].replace("builtins.", "")
    assert 'Revealed type is "list[str]"' in told[1].replace("builtins.", "")
    assert 'has no attribute "lst_topics"' in told[2]
    assert 'incompatible type "int"; expected "str"' in told[3]
