from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
VARYING = re.compile(
    r"\d{8}T\d{6}\.\d+Z-[0-9a-f]{6}"  # a run
    r"|\d+\.\d\d s|[\d.]+ [KM]?i?B"  # durations, and sizes on disk, which the writers' versions decide
    r"|\s+"
)


def code(name: str) -> list[dict[str, Any]]:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, or None."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
    return None


def stored(cell: dict[str, Any]) -> str | None:
    """The text of a cell's value as it was stored."""
    texts = [each["data"]["text/plain"] for each in cell["outputs"] if "data" in each]
    return "".join(texts[-1]) if texts else None


def runs_as_stored(name: str) -> None:
    names: dict[str, Any] = {}
    for cell in code(name):
        value, text = run("".join(cell["source"]), names), stored(cell)
        with pd.option_context("display.max_columns", 20, "display.width", 80):  # as in a kernel
            shown = None if value is None else repr(value)
        assert VARYING.sub(" ", shown or "") == VARYING.sub(" ", text or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-hour", "dashboard"])
def test_a_notebook_shows_the_stored_outputs(name: str) -> None:
    pytest.importorskip("matplotlib")
    runs_as_stored(name)


@pytest.mark.slow
def test_the_notebook_on_a_year_of_flights_shows_the_stored_outputs() -> None:
    pytest.importorskip("matplotlib")
    runs_as_stored("what-if")


@pytest.mark.spark
def test_the_notebook_on_spark_shows_the_stored_outputs(spark: SparkSession) -> None:
    runs_as_stored("spark")
    assert spark.range(1).count() == 1


def test_outputs_are_stored_without_errors_or_locations() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        assert "/tmp/" not in text  # noqa: S108
        outputs = [each for cell in code(path.stem) for each in cell["outputs"]]
        assert len(outputs) >= 6
        assert not any(each["output_type"] == "error" for each in outputs)
