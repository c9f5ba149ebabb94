"""Partition columns from directories `name=value`: their types are decided once; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from urllib.parse import unquote

from retention.core.units import INT64_MAX

NULL = "__HIVE_DEFAULT_PARTITION__"
BIGINT, DATE, TEXT = "bigint", "date", "string"
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_LENIENT_INTEGER = re.compile(r"[-+]?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def values_of(path: str) -> dict[str, str | None]:
    """Name → text of each partition column in a path's directories; null is spelled as in Hive.

    >>> values_of("day=2026-11-26/code=007/a%20b.json"), values_of("2026/x=1.json"), values_of("a=x%20y/b.json")
    ({'day': '2026-11-26', 'code': '007'}, {}, {'a': 'x y'})
    """
    pairs = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {
        unquote(name): None if value == NULL else unquote(value) for name, _, value in pairs if name
    }


def kinds_of(paths: Iterable[str], *, as_spark: bool = False) -> dict[str, str]:
    """Name → type of each partition column of some files, in the order of their directories.

    Canonical whole numbers (`7`, not `007`) are `bigint`, days are `date`, everything else is text, so that no value
    changes.

    Args:
        paths: of all files present.
        as_spark: whether `007` is a number, as it is to Spark.
    """
    texts: dict[str, set[str]] = {}
    for path in paths:
        for name, value in values_of(path).items():
            texts.setdefault(name, set()).update(() if value is None else (value,))
    return {name: _kind(values, as_spark=as_spark) for name, values in texts.items()}


def refusal_of(path: str, kinds: Mapping[str, str]) -> str | None:
    """The reason why the directories of a file do not fit the partition columns; None: they fit."""
    values = values_of(path)
    if values.keys() != kinds.keys():
        had = ", ".join(kinds) or "none"
        return f"{path} lies in directories of the columns {', '.join(values) or 'none'}, and the source has {had}"
    for name, text in values.items():
        if text is not None and not _fits(text, kinds[name]):
            return f"{path}: {name}={text} is not a {kinds[name]}, the type of {name} when the source was first taken"
    return None


def _kind(values: set[str], *, as_spark: bool) -> str:
    pattern = _LENIENT_INTEGER if as_spark else _INTEGER
    if values and all(pattern.fullmatch(text) and _fits(text, BIGINT) for text in values):
        return BIGINT
    if values and all(_fits(text, DATE) for text in values):
        return DATE
    return TEXT


def _fits(text: str, kind: str) -> bool:
    if kind == BIGINT:
        return bool(_LENIENT_INTEGER.fullmatch(text)) and abs(int(text)) <= INT64_MAX
    if kind == DATE:
        return bool(_DATE.fullmatch(text)) and _is_day(text)
    return True


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
