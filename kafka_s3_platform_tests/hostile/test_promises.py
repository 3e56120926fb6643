"""Each promise of docs/security.md names tests that are there."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "security.md"


def promises() -> dict[str, list[str]]:
    """The tests of each promise."""
    table = DOCUMENT.read_text().partition("| promise | tests |")[2].partition("\n\n")[0]
    rows = [line.strip("|").rpartition("|") for line in table.splitlines()[2:]]
    return {promise.strip(): re.findall(r"`([^`]+)`", tests) for promise, _, tests in rows}


@pytest.mark.parametrize(("promise", "tests"), promises().items())
def test_a_promise_names_tests_that_are_there(promise: str, tests: list[str]) -> None:
    assert tests, promise
    for test in tests:
        file, _, name = test.partition("::")
        names = {
            each.name for each in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(each, ast.FunctionDef)
        }
        assert any(each.startswith("test_") for each in names), test
        assert not name or name in names, test


def test_there_are_promises() -> None:
    assert len(promises()) > 10
