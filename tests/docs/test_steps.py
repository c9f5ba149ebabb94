from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path

from retention.storage.crash_points import Step

STORAGE = Path(__file__).parents[2] / "docs" / "semantics" / "storage.md"


def documented() -> list[str]:
    """Rows of the table as the code has them: each step, and the sentence below it."""
    [step] = ast.parse(inspect.getsource(Step)).body
    assert isinstance(step, ast.ClassDef)
    return [
        f"| `{ast.literal_eval(name.value)}` | {ast.literal_eval(said.value)} |"
        for name, said in pairwise(step.body)
        if isinstance(name, ast.Assign) and isinstance(said, ast.Expr)
    ]


def test_the_page_on_storage_lists_the_steps_of_the_code() -> None:
    rows = documented()
    assert len(rows) == len(Step)
    assert "\n".join(rows) in STORAGE.read_text()
