"""Tasks on the workers of a cluster must do with the few dependencies that the doctor looks for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from retention.doctor.spark import NEEDED, ON_S3

ROOT = Path(__file__).parents[2]
RUNS_TASKS = re.compile(r"(\w+\.)*engine\.(map|shuffle|grouped)|map_in_arrow")
"""The name of a function whose arguments include functions for tasks."""
GIVEN_OTHERWISE = "retention.stores.describing"
"""A module whose functions stores give to a `Run`."""
REFUSING = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"{module} needs {name}")

refused = set(sys.argv[1].split())
sys.meta_path.insert(0, Refusing())
for module in sys.argv[2:]:
    __import__(module)
"""


def modules_of_tasks() -> set[str]:
    """The modules of the functions that engines carry out."""
    found = {GIVEN_OTHERWISE}
    for path in sorted((ROOT / "retention").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        sources = {
            name.asname or name.name: node.module or ""
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        defined = {
            node.name: own for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        found |= {(sources | defined).get(name, "") for name in _given(tree)}
    return {module for module in found if module.startswith("retention.")}


def _given(tree: ast.Module) -> Iterator[str]:
    """The names in the arguments of calls that run tasks."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and RUNS_TASKS.fullmatch(ast.unparse(call.func)):
            names = (ast.walk(argument) for argument in call.args)
            yield from (node.id for each in names for node in each if isinstance(node, ast.Name))


def only_of_drivers() -> set[str]:
    """The modules of dependencies that workers may lack."""
    named = {re.split(r"[^\w.-]", each)[0].lower() for each in requires("lake-retention") or []}
    lacking = named - {"pyspark", *NEEDED.values(), *ON_S3.values()}
    modules = {
        module
        for module, sources in packages_distributions().items()
        if lacking.intersection(each.lower() for each in sources)
    }
    return modules | {re.split(r"[.-]", each)[0] for each in lacking}


def test_modules_of_tasks_load_without_the_dependencies_of_drivers() -> None:
    refused, modules = only_of_drivers(), modules_of_tasks()
    assert {"deltalake", "ruamel", "typer"} <= refused
    assert {"retention.datafile.hidden_rows", "retention.planners.probe"} <= modules
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, " ".join(refused), *sorted(modules)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
