"""Pictures as notebooks, pages and files hold them: SVG in the page's text colour, on light and on dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from retention.errors import UsageError
from retention.plots.charts import Chart

INK = "#1f2328"
"""The colour of text and axes where a picture brings its page along; in SVG it is the page's own."""
_STYLE = (
    f"<style>.retention-picture{{color:{INK}}}@media (prefers-color-scheme:dark)"
    "{.retention-picture{color:#e6e6e6}}</style>"
)
_OPENING = re.compile(r"<svg [^>]*?viewBox=\"(?P<box>[^\"]*)\"[^>]*>", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_RULE_FOR_ALL = re.compile(r"\s*<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
"""The style of matplotlib's files, which would hold for a whole page."""
_FONT = re.compile(r"'?DejaVu Sans'?")


@dataclass(frozen=True, repr=False)
class Picture:
    """A drawn chart: notebooks display it, `save` writes it, and `svg` is its text."""

    headline: str
    caption: str
    inline: str
    """An `svg` element for a page, whose text colour it takes; it needs no script, no font and no network."""
    png: Callable[[], bytes]
    """Draws it as a PNG on white."""

    @property
    def svg(self) -> str:
        """A file of its own, which is light or dark as its reader prefers."""
        opening, rest = self.inline.split("\n", 1)
        return f"{opening}\n{_STYLE}\n{rest}"

    def save(self, path: str | Path) -> None:
        """Write it to a file, by the end of its name: `.svg` or `.png`.

        Raises:
            UsageError: the name ends otherwise.
        """
        file = Path(path)
        if file.suffix.lower() == ".svg":
            file.write_text(self.svg, encoding="utf-8")
        elif file.suffix.lower() == ".png":
            file.write_bytes(self.png())
        else:
            raise UsageError(f"{path}: a picture is saved as .svg or .png; nothing was written")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="max-width:40em">{self.inline}</div>'

    def __repr__(self) -> str:
        return f"{self.headline}. Show it in a notebook, or save(…) it as .svg or .png"


def inline_svg(drawn: str, chart: Chart) -> str:
    """The SVG of matplotlib as an element for a page: named for readers who do not see it, in the page's colour.

    Args:
        drawn: the whole file, in which text and axes have the colour `INK`.
        chart: its content.
    """
    opening = _OPENING.search(drawn)
    assert opening is not None  # noqa: S101  (matplotlib writes one)
    width = opening["box"].split()[2]
    head = (
        f'<svg class="retention-picture" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{opening["box"]}" role="img" '
        f'style="stroke-linejoin:round;width:100%;max-width:{float(width) * 4 / 3:g}px;height:auto">\n'
        f"<title>{escape(chart.headline)}</title>\n<desc>{escape(chart.caption)}</desc>"
    )
    body = _RULE_FOR_ALL.sub("", _METADATA.sub("", drawn[opening.end() :]), count=1)
    body = re.sub(rf"(?<=: ){INK}", "currentColor", _FONT.sub("system-ui, sans-serif", body))
    return head + body.rstrip()
