"""Help and a pass with nothing due must be cheap: they load no Spark, and only the parts that they need."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention import open_warehouse

PACKAGE = Path(__file__).parents[2] / "retention"
MAKERS = {"array", "chunked_array", "empty_table", "from_pydict", "from_pylist", "record_batch"}
"""Calls for which Arrow looks for pandas."""

HEAVY = ("pyspark", "py4j", "delta", "pyarrow", "deltalake", "pandas", "numpy", "matplotlib")
REPORT = f"""
import sys
print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""
RUN_COMMAND = f"""
import sys
from retention.cli.main import main
sys.argv = ["retention", *sys.argv[1:]]
try:
    main()
finally:
    {REPORT.strip().replace(chr(10), chr(10) + "    ")}
"""


def loaded_by(code: str, *arguments: str, **environment: str) -> tuple[str, list[str]]:
    """Standard output of a fresh interpreter that runs `code`, and its loaded heavy modules."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr.split()


@pytest.mark.parametrize(
    "module",
    [
        "retention",
        "retention.engines.spark.session",
        "retention.core.policy",
        "retention.core.units",
        "retention.core.subjects",
    ],
)
def test_importing_a_light_module_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}\n{REPORT}")[1] == []


def test_help_loads_nothing_heavy() -> None:
    said, heavy = loaded_by(RUN_COMMAND, "--help")
    assert "apply" in said
    assert heavy == []


def test_tab_completion_loads_nothing_heavy() -> None:
    asked = {
        "_RETENTION_COMPLETE": "complete_bash",
        "COMP_WORDS": "retention ap",
        "COMP_CWORD": "1",
    }
    said, heavy = loaded_by(RUN_COMMAND, **asked)
    assert "apply" in said
    assert heavy == []


def calls_at_import(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that run when a module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield from calls_at_import(node)


def test_no_module_makes_arrow_arrays_when_it_is_imported() -> None:
    made = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in calls_at_import(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call.func, ast.Attribute) and call.func.attr in MAKERS
        if not ast.unparse(call.func).startswith("np.")
    ]
    assert made == [], "Arrow would load pandas, before a job can prevent it"


QUIET = """
import sys
from retention.jobs import retain
sys.argv = ["retain", "--warehouse", sys.argv[1], "--quiet"]
assert retain.main() == 0
print(*sorted(sys.modules), file=sys.stderr)
"""
NEEDLESS = (
    *("retention." + part for part in ("buckets", "delivery", "dialects", "ingest", "inspect")),
    *("retention." + part for part in ("interest", "replay", "restore", "tables", "verify")),
    *(
        "retention." + part
        for part in ("context.holds", "core.stored_documents", "datafile.parquet")
    ),
    *("retention." + part for part in ("delta.snapshot", "rules.holds", "stores.delta.table")),
    *("retention.apply." + part for part in ("archive", "execute", "erase", "seal", "undo")),
    *("retention.apply." + part for part in ("recorded_run", "requested", "saved_plan", "stage")),
    *("retention.engines." + part for part in ("local", "spark.jars", "spark.session")),
    *("retention.erasure." + part for part in ("ledger", "needles", "record", "search")),
    *("retention.plan." + part for part in ("build", "forecasting", "lowered", "protected")),
    *("retention.planners." + part for part in ("afresh", "probe", "requests", "shown", "topic")),
    *("retention.rules.iggy", "retention.rules.jetstream", "retention.rules.requests"),
    *("retention.stores.consumer_table", "retention.stores.parquet"),
    *(
        "cryptography",
        "deltalake",
        "numpy",
        "obstore",
        "pandas",
        "pyarrow",
        "pyspark",
        "subprocess",
    ),
)
"""The parts of removals, of tables and topics, and the libraries that a pass does not need while nothing is due."""
MOST_MODULES = 192


def test_a_pass_with_nothing_due_loads_only_what_it_needs(tmp_path: Path) -> None:
    stream = {"name": "S", "subjects": ["s"], "max_age": "30d"}
    (tmp_path / "retention.yaml").write_text(json.dumps({"streams": [stream]}))
    open_warehouse(tmp_path).stream("S").publish([json.dumps({"subject": "s", "data": ""})])
    loaded_by(QUIET, str(tmp_path))  # it remembers that nothing is due
    _, modules = loaded_by(QUIET, str(tmp_path))
    needless = [name for name in modules if f"{name}.".startswith(tuple(f"{u}." for u in NEEDLESS))]
    assert needless == []
    ours = [name for name in modules if name.startswith("retention")]
    assert len(ours) <= MOST_MODULES
