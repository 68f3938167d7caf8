"""The tool that changes our rules one by one (tests/mutants.py)."""

import ast

import pytest

from tests.architecture.project_files import ROOT
from tests.mutants import ROOMS, mutants_in, mutants_of

SOURCE = '''"""Words are no rules."""

def may(self, n: int, é: str = "é") -> bool:
    assert n >= 0, "never"
    logger.info("é %d", n - 1)
    if n < 3 and é:
        self.count(n + 1)
        raise ValueError(f"{n - 1}")
    return not n == 2
'''


def test_rules_are_changed_and_nothing_else() -> None:
    changed = {SOURCE[one.start : one.end]: one.text for one in mutants_in("it.py", SOURCE)}
    assert changed == {
        "n < 3 and é": "((n < 3) or (é))",
        "n < 3": "(n <= 3)",
        "3": "(3 + 1)",
        "self.count(n + 1)": "pass",
        "n + 1": "(n - 1)",
        "1": "(1 + 1)",
        "n == 2": "(n != 2)",
        "2": "(2 + 1)",
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_mutant_of_each_room_is_python_and_another_program(room: str) -> None:
    mutants = list(mutants_of(room))
    assert len(mutants) > 50
    for mutant in mutants[:: len(mutants) // 20]:
        source = (ROOT / mutant.path).read_text()
        assert ast.dump(ast.parse(mutant.written(source))) != ast.dump(ast.parse(source)), mutant.described(source)
