"""One module builds commits that remove files, one protocol records runs, and one veto precedes every plan."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "retention"
TRANSACTION = "apply/recorded_run.py"
ON_TABLES = "tables/recorded.py"
"""The same for tables in place, whose commits are entries of their own log."""
WITHOUT_COMMIT = {
    "tables/reclaim.py": "files that the log of a table in place has removed are deleted",
    "apply/repair/foreign.py": "files of another writer are moved aside, and no commit names them",
}
"""Modules that begin a run's record but commit nothing."""
NOTHING = "LOGGED_FILES.empty_table()"


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield str(path.relative_to(ROOT)), node


def taken_out(call: ast.Call) -> str | None:
    """The files that a call removes from a table, as source text; None: it builds no swap."""
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if ast.unparse(call.func) == "Swap":
        return named.get("remove") or ast.unparse(call.args[0])
    if ast.unparse(call.func) == "replace":
        return named.get("remove")
    return None


def test_one_module_composes_commits_that_take_files_out() -> None:
    removing = {
        module for module, call in calls() if (taken_out(call) or NOTHING) not in {NOTHING, ""}
    }
    assert removing == {TRANSACTION}


def test_one_module_records_what_is_about_to_be_committed() -> None:
    beginning = {
        module
        for module, call in calls()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "begin"
        and "history" in ast.unparse(call.func.value)
    }
    assert beginning == {TRANSACTION, ON_TABLES, *WITHOUT_COMMIT}


def test_every_decision_passes_the_veto_before_it_is_a_plan() -> None:
    """`plan/build.py` takes decisions that passed the veto, and nothing else makes a plan with actions."""
    passing = {module for module, call in calls() if ast.unparse(call.func) == "Vetoed"}
    assert passing == {"planners/veto.py"}
    acting = {
        module
        for module, call in calls()
        if ast.unparse(call.func) == "Actions" and (call.args or call.keywords)
    }
    assert acting == {"plan/build.py", "plan/planfile.py"}
