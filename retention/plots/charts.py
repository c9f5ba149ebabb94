"""Charts as values: stacks over time or segments, curves over time, named rows, and logs as strips of boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Series:
    """One kind of amounts, in one colour."""

    name: str
    """`kept`, a rule, or another key of `palette.STYLES`."""
    values: Numbers


@dataclass(frozen=True)
class Stack:
    """Amounts in adjacent columns, one series on another."""

    edges: Numbers
    """The edges of the columns, one more than values: days since the epoch, or numbers of segments."""
    series: tuple[Series, ...]
    is_time: bool = True
    title: str = ""


@dataclass(frozen=True)
class Curve:
    """A number over time between two bounds, which are equal where it is exact."""

    name: str
    days: Numbers
    """Days since the epoch."""
    lower: Numbers
    """NaN: a gap."""
    upper: Numbers


@dataclass(frozen=True)
class Curves:
    """Several numbers over time."""

    curves: tuple[Curve, ...]
    title: str = ""
    is_stepped: bool = False
    """Whether a number holds until the next instant; otherwise it is drawn on a straight line to it."""
    is_stacked: bool = False
    """Whether the bounds are the lower and the upper edge of an area, one curve on another."""


@dataclass(frozen=True)
class Panel:
    """A column of bars beside names."""

    title: str
    series: tuple[Series, ...]
    text_of: Callable[[int], str]
    """Makes the text beside a bar of its total."""


@dataclass(frozen=True)
class Rows:
    """Named rows with a bar in each panel, from top to bottom."""

    names: tuple[str, ...]
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Box:
    """One message, row or file in a strip."""

    name: str
    """Its sequence or number, in bold."""
    lines: tuple[str, ...]
    """Its subject and other properties, a line each."""
    fate: str
    """A key of `palette.STYLES`, for the colour."""
    word: str
    """The fate in a word."""
    group: str = ""
    """The segment or file that it is in; neighbours of one group stand together, with its name below."""


@dataclass(frozen=True)
class Strip:
    """A log from left to right, one box a message; all strips of a picture have the same width of boxes."""

    boxes: tuple[Box, ...]
    title: str = ""

    @property
    def lines(self) -> int:
        """The most lines of a box, with its name and its word."""
        return 2 + max(len(box.lines) for box in self.boxes)

    @property
    def lefts(self) -> list[float]:
        """The left edges of the boxes, in widths of a box; half of one lies between groups."""
        lefts, at = [], 0.0
        for number, box in enumerate(self.boxes):
            at += 0.5 if number and box.group != self.boxes[number - 1].group else 0.0
            lefts.append(at + number)
        return lefts


Part = Stack | Curves | Rows | Strip
"""A part of a picture; rows, and strips, are a picture of their own."""


@dataclass(frozen=True)
class Chart:
    """A picture to draw: a headline, what its amounts are, and its parts from top to bottom."""

    headline: str
    caption: str
    parts: tuple[Part, ...] = ()
    """Empty: there is nothing to draw but the headline."""

    @property
    def keys(self) -> list[str]:
        """The names in its legend, in the order of their first use."""
        names: list[str] = []
        for part in self.parts:
            names += _keys(part)
        return list(dict.fromkeys(names))


def _keys(part: Part) -> list[str]:
    if isinstance(part, Curves):
        return [curve.name for curve in part.curves]
    if isinstance(part, Strip):
        return [box.fate for box in part.boxes]
    of_rows = (
        [each for panel in part.panels for each in panel.series] if isinstance(part, Rows) else []
    )
    series = part.series if isinstance(part, Stack) else of_rows
    return [each.name for each in series if each.values.any()]
