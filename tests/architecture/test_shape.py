"""Layers, sizes and independence of the code, checked on the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.long import LongRun, long_runs, named

ROOT = Path(__file__).parents[2]
CODE = ("retention", "jobs", "airflow_dags", "scripts", "benchmarks")
MODULES = sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py"))
PROSE = {
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".ipynb",
    ".sh",
    ".lock",
    ".properties",
    "",
}
MOST_MODULE_LINES = 400
MOST_FUNCTION_LINES = 60
# Spelled in parts, so that this file does not contain them.
FOREIGN = [
    "".join(parts)
    for parts in [
        ("../", "shared"),
        ("/work", "/"),
        ("fresh", "-clone"),
        ("pypi", ".org"),
        ("python", "hosted"),
        ("repo1", ".maven"),
        ("maven", ".apache"),
        ("registry.", "npmjs"),
        ("crates", ".io"),
        ("proxy.", "golang"),
    ]
]


MADE = ("demo", "build", "dist")
"""Leftovers of Makefile commands."""


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def texts() -> Iterator[Path]:
    """Every text file of the project."""
    for entry in ROOT.iterdir():
        if entry.name in MADE or (entry.name.startswith(".") and entry.name != ".ci"):
            continue
        found = [entry, *entry.rglob("*")]
        yield from (path for path in found if path.is_file() and path.suffix in PROSE)


def test_the_code_is_where_these_tests_look() -> None:
    assert ROOT / "retention" / "errors" / "__init__.py" in MODULES


def test_imports_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_module_can_be_read_in_one_sitting() -> None:
    long = [
        f"{module}: {lines} lines: split it"
        for module in MODULES
        if (lines := module.read_text(encoding="utf-8").count("\n")) > MOST_MODULE_LINES
    ]
    long += [
        f"{module}:{function.lineno} {function.name}: {length} lines"
        for module in MODULES
        for function in functions(module)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MOST_FUNCTION_LINES
    ]
    assert long == []


def test_a_module_says_what_it_owns() -> None:
    silent = [
        module
        for module in MODULES
        if not ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_one_module_rests_on_what_deltalake_keeps_private() -> None:
    """Private names of deltalake, and the files of a log: a new release breaks these first."""
    fences = ("retention/delta/log_files.py", "retention/stores/delta/internals.py")
    found = {
        str(module.relative_to(ROOT))
        for module in MODULES
        if module.is_relative_to(ROOT / "retention")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if names_internals(node)
    }
    assert found == {*fences}


def names_internals(node: ast.AST) -> bool:
    """Whether a node imports a private module of deltalake, or contains the directory name of a Delta log."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith("deltalake._")
    if isinstance(node, ast.Import):
        return any(name.name.startswith("deltalake._") for name in node.names)
    return isinstance(node, ast.Constant) and "_delta_log" in str(node.value)


def test_one_module_maps_the_name_of_a_table_format_to_its_behaviour() -> None:
    """Others ask `TableFormat` for a property; the configuration, and outputs of commands, have names of formats."""
    found = {
        str(module.relative_to(ROOT / "retention"))
        for module in (ROOT / "retention").rglob("*.py")
        if module.relative_to(ROOT / "retention").parts[0] not in ("config", "cli")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        if {"delta", "parquet"}.intersection(
            part.value for part in ast.walk(node) if isinstance(part, ast.Constant)
        )
    }
    assert found == {"stores/__init__.py"}


def test_functions_reach_spark_s_tasks_one_way() -> None:
    """The way that detects a worker with another version of this package."""
    by_hand = [
        module.name
        for module in (ROOT / "retention").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr
        in ("mapInArrow", "mapInPandas", "applyInArrow", "applyInPandas", "mapPartitions")
    ]
    assert by_hand == ["task_code.py"]


def test_the_project_stands_alone() -> None:
    """No path outside of the project, and no address of a package registry: these belong to the machine."""
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in texts()
        for word in FOREIGN
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []


@pytest.mark.parametrize("run", long_runs().values(), ids=lambda run: run.name)
def test_a_long_run_names_paths_that_exist_and_variables_that_tests_read(run: LongRun) -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for path in run.paths.split():
        module = ROOT / path.replace(".", "/")
        assert (ROOT / path).exists() or module.is_dir() or module.with_suffix(".py").exists()
    assert [v for v in run.variables.split() if f'"{v.split("=")[0]}"' not in tests] == []
    assert run.minutes.isdigit()


def test_texts_name_long_runs_as_make_starts_them() -> None:
    runs = "|".join(long_runs().keys() - {"conformance"})
    wrong = [
        f"{path.relative_to(ROOT)}: {called[0]}"
        for path in texts()
        for called in re.finditer(
            rf"make (?:{runs})\b[`\"]|make long NAME=([a-z-]+)", path.read_text(encoding="utf-8")
        )
        if called[1] not in long_runs() and path.name != "Makefile"
    ]
    assert wrong == []


def test_an_unknown_long_run_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(SystemExit, match="There is no long run crahs: did you mean crash"):
        named("crahs", long_runs())


def test_the_page_on_test_support_has_a_line_for_each_file() -> None:
    support = ROOT / "tests" / "support"
    page = (support / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[\w/]+\]\(([\w/]+\.py)\) \| .+ \|$", page, re.MULTILINE)
    files = [str(path.relative_to(support)) for path in support.rglob("*.py")]
    assert sorted(listed) == sorted(files)
