"""Lines of CSV in which no text is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def csv_line(cells: Iterable[object]) -> str:
    """A line without its end; cells of text have been through `guarded`."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def guarded(text: str) -> str:
    """A text with an apostrophe before it if a spreadsheet would calculate it.

    >>> guarded("=1+1"), guarded("orders"), guarded("")
    ("'=1+1", 'orders', '')
    """
    return f"'{text}" if text.startswith(_FORMULAS) else text
