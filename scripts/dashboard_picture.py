"""The picture of the dashboard's panels, drawn from its file: `python -m scripts.dashboard_picture`."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "monitoring" / "grafana-dashboard.json"
PICTURE = ROOT / "docs" / "pictures" / "dashboard.svg"
COLUMN, GAP = 40, 4
"""The pixels of a unit of Grafana's grid in width, and between two panels."""
HEAD, BAND, LINE = 18, 76, 13
"""The pixels of a heading, of panels side by side, and of a line of text; charts are shown flat."""
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}.of{fill:#59636e;font-size:11px}"
    "rect{fill:#f6f8fa;stroke:#d1d9e0}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.of{fill:#9198a1}"
    "rect{fill:#151b23;stroke:#3d444d}}"
)


def picture(dashboard: Mapping[str, Any]) -> str:
    """The panels of a dashboard as SVG: title and description of each, at its place."""
    panels = dashboard["panels"]
    tops, height = _tops(panels)
    size = f'viewBox="0 0 {24 * COLUMN} {height}" width="{24 * COLUMN}" height="{height}"'
    lines = [line for panel in panels for line in _panel(panel, tops[panel["gridPos"]["y"]])]
    title = html.escape(str(dashboard["title"]))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{title}</title>'
    return "\n".join([head, f"<style>{STYLE}</style>", *lines, "</svg>", ""])


def _tops(panels: Iterable[Mapping[str, Any]]) -> tuple[dict[int, int], int]:
    """Row of Grafana's grid → its pixels from the top, and the height of all."""
    heads = {each["gridPos"]["y"]: each["type"] == "row" for each in panels}
    tops, top = {}, 0
    for row in sorted(heads):
        tops[row] = top
        top += HEAD if heads[row] else BAND
    return tops, top


def _panel(panel: Mapping[str, Any], top: int) -> Iterator[str]:
    at = panel["gridPos"]
    left, wide = at["x"] * COLUMN, at["w"] * COLUMN - GAP
    if panel["type"] == "row":
        yield _text(left + 2, top + LINE, str(panel["title"]), "head")
        return
    yield f'<rect x="{left}" y="{top}" width="{wide}" height="{BAND - GAP}" rx="4"/>'
    yield _text(left + 8, top + 17, str(panel["title"]), "head")
    description = textwrap.wrap(
        str(panel.get("description", "")), wide // 7, max_lines=3, placeholder=" …"
    )
    for number, line in enumerate(description):
        yield _text(left + 8, top + 34 + LINE * number, line, "of")


def _text(left: int, top: int, text: str, kind: str) -> str:
    return f'<text x="{left}" y="{top}" class="{kind}">{html.escape(text)}</text>'


def main() -> None:
    """Draw it."""
    PICTURE.write_text(picture(json.loads(DASHBOARD.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
