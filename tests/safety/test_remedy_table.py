"""The table of remedies is complete: each sentence of exit codes 4 and 6 has a kind, each kind a test or reason."""

from __future__ import annotations

import ast

import pytest

from tests.safety.remedies import KINDS, ROOT, sentences


def test_every_sentence_that_refuses_has_a_kind_of_remedy() -> None:
    listed = sentences()
    assert len(listed) > 200
    unkind = [f"{one.place}: {one.text}" for one in listed if not one.kinds]
    assert not unkind, (
        "a test carries out the remedy of each: give it a kind in tests/safety/remedies.py"
    )


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_in_use_and_has_a_test_or_says_why_not(name: str) -> None:
    kind = KINDS[name]
    assert any(name in one.kinds for one in sentences())
    assert bool(kind.tests) != bool(kind.untested)
    for test in kind.tests:
        file, _, function = test.partition("::")
        module = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert function in {
            node.name for node in module.body if isinstance(node, ast.FunctionDef)
        }, test
