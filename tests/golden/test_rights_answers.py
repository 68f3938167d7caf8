"""What Apache Kafka 4.3.1 answers to clients with and without rights, and our answers to the same requests.

`rights_answers.json` is made by `python -m tests.golden.rights_scenarios`; `rights_plays.py` has the questions: every
API in its oldest and newest version, asked by five clients. Error codes, names, authorized operations and what is left
out are compared (KafkaApis, ControllerApis, StandardAuthorizer).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.security.rights import RIGHTS, Effect
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from tests.golden.rights_plays import CASES
from tests.golden.rights_scenarios import SETTINGS, Stage
from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.long
KAFKAS: dict[str, Any] = json.loads((Path(__file__).parent / "rights_answers.json").read_text())
APIS = sorted({ApiKey(case.api_key) for case in CASES})
NEVER_ASKED = {ApiKey.ENVELOPE, ApiKey.TXN_SHARE_ACKNOWLEDGE}
"""Kafka's brokers do not serve the first on the listeners of clients, and do not know the second."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Our answers to all questions."""
    with BrokerProcess(tmp_path_factory.mktemp("rights"), settings=SETTINGS) as broker:
        stage = Stage(broker.address)
        stage.prepare()
        yield dict(stage.answers(CASES))
        stage.close()
        assert "Traceback" not in broker.log()
        assert "DENIED principal=User:ANONYMOUS host=127.0.0.2 operation=WRITE" in broker.log()


def test_every_api_that_needs_a_right_is_asked() -> None:
    assert {key for key, rights in RIGHTS.items() if rights} - NEVER_ASKED <= set(APIS)


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.api_name)
def test_every_client_gets_kafkas_answer(ours: dict[str, Any], key: ApiKey) -> None:
    """R10: for every client, in the oldest and the newest version."""
    names = {case.name for case in CASES if case.api_key == key}
    steps = [step for step in KAFKAS if step.rpartition(" v")[0] in names]
    assert steps
    assert {step: ours[step] for step in steps} == {step: KAFKAS[step] for step in steps}


@pytest.mark.parametrize(
    "key",
    [
        key
        for key, rights in RIGHTS.items()
        if key not in NEVER_ASKED and any(one.effect in (Effect.REQUEST, Effect.ENTRY) for one in rights)
    ],
    ids=lambda key: key.api_name,
)
def test_the_table_names_the_errors_that_kafka_answers(key: ApiKey) -> None:
    """A client without any right gets no other error of rights than those in the table, and gets one of them."""
    names = {case.name for case in CASES if case.api_key == key}
    found = {
        code
        for step, answer in KAFKAS.items()
        if step.rpartition(" v")[0] in names and step.endswith(" as none")
        for code in ErrorCode
        if code.name.endswith("AUTHORIZATION_FAILED") and f'error_code": {code.value}' in json.dumps(answer)
    }
    assert found
    assert found <= {right.error for right in RIGHTS[key]}
