"""Parts of a page for notebooks and terminals: cards, tables and muted text, escaped, with inline style only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape as html_escape
from itertools import zip_longest

from retention.errors.printable import visible

LINE = "var(--jp-border-color2, rgba(128,128,128,.35))"
"""The colour of lines: JupyterLab's, else neither black nor white. Text keeps the page's own colour."""
MOST_ROWS = 30
"""The rows of a table that are shown; the rest is counted."""
_LONGEST, _LONGEST_LAST = 120, 600
"""The characters of a cell or title that are shown, and of a cell of the last column, which wraps."""
_CARD = (
    "font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;max-width:80em;margin:.4em 0;"
    f"padding:1em 1.3em;border:1px solid {LINE};border-radius:8px;overflow-x:auto"
)
_CELL = "padding:.25em 1.4em .25em 0;text-align:{};vertical-align:top;border:0"
_WIDTH = ("white-space:nowrap", "width:100%;min-width:11em;overflow-wrap:anywhere")
"""The styles of a column: the last one (index 1) takes the remaining width."""


def escape(text: str) -> str:
    """A text escaped as HTML, in which no name reorders the line."""
    return html_escape(visible(text))


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A text of bounded length: a longer one is cut, and its length added."""
    if len(text) <= longest:
        return text
    return f"{text[: longest * 2 // 3]}… ({len(text):,} characters)"


def card(title: str, aside: str, parts: Sequence[str]) -> str:
    """A frame with a title, a remark at its right, and parts in HTML."""
    head = (
        '<div style="display:flex;justify-content:space-between;gap:0 2em;flex-wrap:wrap">'
        f'<strong style="font-size:1.15em">{escape(shortened(title))}</strong>{muted(aside)}</div>'
    )
    return f'<div style="{_CARD}">{head}{"".join(parts)}</div>'


def muted(text: str) -> str:
    """A text of less weight."""
    return f'<span style="opacity:.65">{escape(text)}</span>'


def lines_card(lines: Sequence[str], title: str = "", aside: str = "") -> str:
    """A card of sentences: the first one is the title, unless another is given."""
    rest = lines if title else lines[1:]
    parts = [f"<div>{escape(line.strip())}</div>" for line in rest[:MOST_ROWS]]
    parts += [muted(_more(len(rest) - MOST_ROWS))] if len(rest) > MOST_ROWS else []
    return card(title or "".join(lines[:1]), aside, parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int]) -> str:
    """A table, of which the first `MOST_ROWS` rows are shown; `numbers` are the right-aligned columns."""

    def cells(row: Sequence[str], tag: str, more: str) -> str:
        last = len(row) - 1
        styles = [
            f"{_CELL.format('right' if at in numbers else 'left')};{_WIDTH[at == last and at not in numbers]};{more}"
            for at in range(len(row))
        ]
        lengths = [*[_LONGEST] * (len(row) - 1), _LONGEST_LAST]
        return "".join(
            f'<{tag} style="{style}">{escape(shortened(cell, longest))}</{tag}>'
            for style, cell, longest in zip(styles, row, lengths, strict=True)
        )

    heading = f"font-weight:600;border-bottom:1px solid {LINE}"
    top = f"<thead><tr>{cells(head, 'th', heading)}</tr></thead>" if head else ""
    body = "".join(
        f'<tr style="background:transparent">{cells(row, "td", "font-variant-numeric:tabular-nums")}</tr>'
        for row in rows[:MOST_ROWS]
    )
    width = "auto" if head and len(head) - 1 in numbers else "100%"
    return (
        '<table style="table-layout:auto;border-collapse:collapse;border:0;color:inherit;margin:.2em 0 .8em;'
        f'font-size:1em;width:{width}">'
        f"{top}<tbody>{body}</tbody></table>"
        f"{muted(_more(len(rows) - MOST_ROWS)) if len(rows) > MOST_ROWS else ''}"
    )


def text_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int]
) -> list[str]:
    """The lines of the same table for a terminal, its columns aligned."""
    shown = [[visible(shortened(cell)) for cell in row] for row in [head, *rows[:MOST_ROWS]]]
    widths = [max(map(len, column)) for column in zip_longest(*shown, fillvalue="")]
    lines = [
        "  ".join(
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]
    return [*lines, *([_more(len(rows) - MOST_ROWS)] if len(rows) > MOST_ROWS else [])]


def _more(number: int) -> str:
    return f"and {number:,} more"
