"""Tasks on the workers of a cluster must do with the few dependencies that `docs/spark.md` names."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from tests.support.cluster import TASKS_NEED

ROOT = Path(__file__).parents[2]
GIVEN_TO_ENGINES = re.compile(r"engine\.(?:map|shuffle|grouped)\(|run\(partial|map_in_arrow\(")
"""A call that has functions of a module carried out by tasks."""
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


def task_modules() -> list[str]:
    """The modules that give functions to engines, and so are loaded by workers."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "retention").rglob("*.py"))
        if GIVEN_TO_ENGINES.search(path.read_text(encoding="utf-8"))
    ]


def only_of_drivers() -> set[str]:
    """The modules of dependencies that workers may lack."""
    named = {re.split(r"[^\w.-]", each)[0].lower() for each in requires("lake-retention") or []}
    lacking = named - {"pyspark", *TASKS_NEED}
    modules = {
        module
        for module, sources in packages_distributions().items()
        if lacking.intersection(each.lower() for each in sources)
    }
    return modules | {re.split(r"[.-]", each)[0] for each in lacking}


def test_modules_of_tasks_load_without_the_dependencies_of_drivers() -> None:
    refused = only_of_drivers()
    assert {"deltalake", "ruamel", "typer"} <= refused
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, " ".join(refused), *task_modules()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_names_each_package_that_tasks_need() -> None:
    page = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
    [sentence] = re.findall(r"whose Python has what it depends on \(.*?\)", page)
    assert {*re.findall(r"`([\w-]+)`", sentence)} == {*TASKS_NEED}
