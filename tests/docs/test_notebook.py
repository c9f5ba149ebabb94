from __future__ import annotations

import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


def code() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_runs_from_top_to_bottom() -> None:
    names: dict[str, object] = {}
    for number, source in enumerate(code()):
        exec(compile(source, f"cell {number}", "exec"), names)  # noqa: S102
    plan, report = names["plan"], names["report"]
    assert plan.explain(2060).goes  # type: ignore[attr-defined]
    assert not plan.explain(2061).goes  # type: ignore[attr-defined]
    assert report.removed_messages == 2_060  # type: ignore[attr-defined]


def test_the_notebook_is_kept_without_outputs() -> None:
    assert not any(cell.get("outputs") for cell in json.loads(NOTEBOOK.read_text())["cells"])
