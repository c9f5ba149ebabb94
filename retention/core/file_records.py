"""Records of data files from outside: paths must stay below `messages/`, and fields fit each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from retention.errors.printable import sentence

_MOST_SHOWN = 80
_MOST_DECODED = 3
"""The maximum number of times that the layers above the disk may decode percent escapes."""

PLACED = re.compile(r"^partition=(?P<partition>0|[1-9]\d*)/segment=(?P<segment>0|[1-9]\d*)/[^/]+$")
"""The path of a data file in the directory of its partition and segment."""
_NOT_LOCAL = re.compile(r"/|~|[A-Za-z][A-Za-z0-9+.-]*:")


def is_inside(path: str) -> bool:
    """Whether a path of a data file stays below `messages/`, even after `%2e` is decoded to a dot.

    >>> is_inside("partition=0/segment=1/a.parquet"), is_inside("a/../b"), is_inside("%252e%252e/b")
    (True, False, False)
    """
    for _ in range(_MOST_DECODED):
        if not path or _NOT_LOCAL.match(path) or re.search(r"[\\\x00-\x1f\x7f]", path):
            return False
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            return False
        path = unquote(path)
    return True


def record_problem(row: Mapping[str, Any]) -> str | None:
    """The first inconsistency between the fields of a row of statistics, as text; None: they are consistent."""
    place = PLACED.fullmatch(row["path"])
    if row["path"].startswith("partition=") and place is None:
        return "path is not that of a data file"
    if place is not None and (int(place[1]), int(place[2])) != (row["partition"], row["segment"]):
        return (
            f"path {row['path']} is not in partition {row['partition']}, segment {row['segment']}"
        )
    if row["messages"] and row["min_seq"] > row["max_seq"]:
        return f"min_seq {row['min_seq']} is above max_seq {row['max_seq']}"
    return None


def quoted(value: object) -> str:
    """A value as errors quote it: short, and without control characters."""
    try:
        text = repr(value)
    except ValueError:
        # An integer with more digits than Python converts to text.
        text = "a number of thousands of digits"
    return sentence(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")
