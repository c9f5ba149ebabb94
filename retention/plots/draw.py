"""Charts drawn by matplotlib: figures without windows, displays or state shared with the caller's own figures."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from retention.errors import UsageError
from retention.plots.charts import Chart, Curve, Curves, Numbers, Part, Rows, Stack, Strip
from retention.plots.palette import STYLES, curve_colour, style_of
from retention.plots.picture import INK, Picture, inline_svg
from retention.plots.wording import short_number

_WIDTH, _HEIGHT, _ROW = 6.0, 2.4, 0.3
"""Inches: the width, the height of a part with axes, and that of a row."""
_HEAD, _TEXT = 14, 11
"""Points of the headline and of other text; at 390 pixels a point is 0.9 pixels."""
_HEAD_LINE, _LINE = 0.27, 0.21
"""Inches of their lines."""
_HEAD_WIDTH, _TEXT_WIDTH = 48, 68
"""Characters of a line."""
_BOX_LINE, _BOXES = 0.19, 8
"""Inches of a line in a box of a strip, and the fewest boxes that fill the width."""
_MARGIN, _LEFT = 0.1, 0.01
"""Inches above and below, and the share of the width on each side."""
_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": _TEXT,
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.color": "#333333",
    "hatch.linewidth": 1.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "lake-retention",
}
_FEW = 3
"""The most points of a curve that are drawn as marks, because their line may be too short to see."""


def draw(chart: Chart) -> Picture:
    """A chart as a picture.

    Raises:
        UsageError: matplotlib is not installed here.
    """
    with _matplotlib():
        svg = _saved(_figure(chart), "svg", metadata={"Date": None, "Creator": None})

    def png() -> bytes:
        with _matplotlib():
            return _saved(_figure(chart), "png", dpi=144, facecolor="white")

    return Picture(chart.headline, chart.caption, inline_svg(svg.decode(), chart), png)


@contextmanager
def _matplotlib() -> Iterator[None]:
    """The settings of these pictures, whatever those of the caller are."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise UsageError(
            "pictures are drawn by matplotlib, which is not installed here: pip install 'lake-retention[plots]'"
        ) from error
    with style.context(["default", _RC]), warnings.catch_warnings():
        # Its font lacks some scripts; SVG has the text itself, which its reader's fonts show.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _saved(figure: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=kind, **{"transparent": kind == "svg", **options})
    return file.getvalue()


def _figure(chart: Chart) -> Any:
    from matplotlib.figure import Figure

    head = textwrap.wrap(chart.headline, _HEAD_WIDTH)
    text = textwrap.wrap(chart.caption, _TEXT_WIDTH)
    keys = _legend(chart)
    heights = [_height(part) for part in chart.parts]
    above = _MARGIN + _HEAD_LINE * len(head)
    top = above + _LINE * len(text) + 0.08
    bottom = _HEAD_LINE * -(-len(keys) // 2) + _MARGIN
    tall = top + sum(heights) + bottom
    figure = Figure(figsize=(_WIDTH, tall))
    figure.text(_LEFT, 1 - _MARGIN / tall, "\n".join(head), va="top", size=_HEAD, weight="bold")
    figure.text(_LEFT, 1 - above / tall, "\n".join(text), va="top", alpha=0.75)
    if chart.parts:
        box = (_LEFT, bottom / tall, 1 - 2 * _LEFT, 1 - (top + bottom) / tall)
        figure.set_layout_engine("constrained", rect=box)
        _draw_parts(figure, chart)
    if keys:
        figure.legend(handles=keys, loc="lower left", ncols=2, frameon=False, handlelength=1.2)
    return figure


def _draw_parts(figure: Any, chart: Chart) -> None:
    others = []
    strips = [part for part in chart.parts if isinstance(part, Strip)]
    if strips:
        _draw_strips(figure, strips)
    for part in chart.parts:
        if isinstance(part, Strip):
            continue
        if isinstance(part, Rows):
            _draw_rows(figure.subplots(1, len(part.panels), sharey=True, squeeze=False)[0], part)
        else:
            others.append(part)
    grid = figure.subplots(len(others), 1, sharex=True, squeeze=False)[:, 0] if others else ()
    for axes, other in zip(grid, others, strict=True):
        _draw_part(axes, other)


def _height(part: Part) -> float:
    if isinstance(part, Strip):
        below = _BOX_LINE if any(box.group for box in part.boxes) else 0
        return _BOX_LINE * (part.lines + 1) + below + (_LINE if part.title else 0)
    return 0.35 + _ROW * len(part.names) if isinstance(part, Rows) else _HEIGHT


def _draw_part(axes: Any, part: Stack | Curves) -> None:
    if part.title:
        axes.set_title(part.title, loc="left", size=_TEXT)
    if isinstance(part, Stack):
        _draw_stack(axes, part)
    else:
        _draw_curves(axes, part)
    _quiet(axes)
    axes.set_ylim(0, (axes.dataLim.y1 if axes.dataLim.y1 > 0 else 1) * 1.06)
    axes.yaxis.set_major_formatter(lambda number, _: short_number(number))
    axes.yaxis.get_major_locator().set_params(nbins=5)
    axes.set_axisbelow(True)
    axes.grid(axis="y", alpha=0.2, color=INK)


def _draw_stack(axes: Any, stack: Stack) -> None:
    below = np.zeros(len(stack.edges) - 1)
    for series in stack.series:
        if series.values.any():
            style, above = style_of(series.name), below + series.values
            axes.stairs(
                above, stack.edges, baseline=below, fill=True,
                color=style.colour, hatch=style.hatch, linewidth=0,
            )  # fmt: skip
            below = above
    axes.margins(x=0)
    if stack.is_time:
        _dates(axes)
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_curves(axes: Any, curves: Curves) -> None:
    for number, curve in enumerate(curves.curves):
        if curves.is_stacked:
            style = style_of(curve.name)
            axes.fill_between(
                curve.days,
                curve.lower,
                curve.upper,
                facecolor=style.colour,
                hatch=style.hatch,
                linewidth=0,
            )
            continue
        colour = _curve_colour(curve.name, number)
        steps = "post" if curves.is_stepped else None
        axes.fill_between(
            curve.days, curve.lower, curve.upper, step=steps, color=colour, alpha=0.25, linewidth=0
        )
        for bound in _bounds(curve.lower, curve.upper):
            axes.plot(
                curve.days, bound, color=colour, linewidth=2, marker=_marker(curve),
                drawstyle="steps-post" if curves.is_stepped else "default",
            )  # fmt: skip
    _dates(axes)


def _marker(curve: Curve) -> str | None:
    """The mark of each number, where a line may not show it: one of few, or beside a gap."""
    if len(curve.days) <= _FEW:
        return "o"
    return "." if np.isnan(curve.lower).any() else None


def _bounds(lower: Numbers, upper: Numbers) -> list[Numbers]:
    return [lower] if np.array_equal(lower, upper, equal_nan=True) else [lower, upper]


def _draw_strips(figure: Any, strips: Sequence[Strip]) -> None:
    width = max(_BOXES, *(strip.lefts[-1] + 1 for strip in strips))
    heights = {"height_ratios": [_height(strip) for strip in strips]}
    grid = figure.subplots(len(strips), 1, squeeze=False, gridspec_kw=heights)[:, 0]
    for axes, strip in zip(grid, strips, strict=True):
        _draw_strip(axes, strip)
        axes.set_xlim(0, width)
        axes.set_axis_off()


def _draw_strip(axes: Any, strip: Strip) -> None:
    tall, size = strip.lines + 0.9, _TEXT - 1
    axes.set_title(strip.title, loc="left", size=_TEXT)
    groups: dict[str, list[float]] = {}
    for left, box in zip(strip.lefts, strip.boxes, strict=True):
        style, middle = style_of(box.fate), left + 0.5
        groups.setdefault(box.group, []).append(middle)
        axes.bar(middle, tall, 0.92, color="none", edgecolor=INK, linewidth=0.8)
        axes.bar(middle, 0.5, 0.92, color=style.colour, hatch=style.hatch, linewidth=0)
        texts = [box.name, *box.lines, *[""] * (strip.lines - len(box.lines) - 2), box.word]
        for line, text in enumerate(texts, 1):
            weight = "bold" if line == 1 else "normal"
            smaller = size - 1 if line == len(texts) else size
            axes.text(middle, line + 0.45, text, ha="center", size=smaller, weight=weight)
    for name, middles in groups.items():
        axes.text(sum(middles) / len(middles), tall + 0.85, name, ha="center", size=size)
    axes.set_ylim(tall + (1 if any(groups) else 0.1), -0.1)


def _draw_rows(grid: Sequence[Any], rows: Rows) -> None:
    places = np.arange(len(rows.names))
    for axes, panel in zip(grid, rows.panels, strict=True):
        left = np.zeros(len(places))
        for series in panel.series:
            style = style_of(series.name)
            axes.barh(
                places, series.values, 0.7, left, color=style.colour, hatch=style.hatch, linewidth=0
            )
            left = left + series.values
        most = left.max() or 1.0
        for place, total in zip(places, left, strict=True):
            axes.text(total + most * 0.03, place, panel.text_of(int(total)), va="center")
        axes.set_xlim(0, most * 1.6)
        axes.set_xticks([])
        axes.set_title(panel.title, loc="left", size=_TEXT)
        _quiet(axes)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    grid[0].set_yticks(places, rows.names)
    grid[0].set_ylim(len(places) - 0.5, -0.5)


def _dates(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
    first, last = axes.dataLim.x0, axes.dataLim.x1
    if first == last:
        axes.set_xlim(first - 0.5, last + 0.5)
    axes.xaxis_date()
    axes.xaxis.set_major_locator(locator)
    axes.margins(x=0)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _quiet(axes: Any) -> None:
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _curve_colour(name: str, number: int) -> str:
    return STYLES[name].colour if name in STYLES else curve_colour(number)


def _names_itself(part: Part) -> bool:
    """Whether the names in a part leave nothing for a legend to say."""
    return isinstance(part, Rows) and all(
        len(panel.series) == 1 or not panel.title for panel in part.panels
    )


def _legend(chart: Chart) -> list[Any]:
    from matplotlib.patches import Patch

    if all(map(_names_itself, chart.parts)):
        return []
    keys = chart.keys
    curves = any(isinstance(part, Curves) for part in chart.parts)
    return [
        Patch(
            facecolor=_curve_colour(key, number) if curves else style_of(key).colour,
            hatch="" if curves and key not in STYLES else style_of(key).hatch,
            label=key,
            linewidth=0,
        )
        for number, key in enumerate(keys)
    ]
