"""The tables of misconfigured consumers on docs/semantics/consumers.md, and what we say of their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retention.config.mistakes import read_model
from retention.config.stream import StreamConfig
from retention.consumers.config import ConsumerConfig
from retention.consumers.refusals import refusals

PAGE = Path(__file__).parents[2] / "docs" / "semantics" / "consumers.md"
INVALID_JSON = 10025
NOT_REFUSED = "none"
_TABLE = re.compile(r"^\| asked \|.*\n\|[-|]+\|\n(?:\|.*\n)+", re.M)
_CODE = re.compile(r" \(server error \d+\)$")

Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A request that somebody refuses: on which stream, beside or instead of which consumer, and why."""

    asked: Json
    stream: Json
    beside: Json | None
    there: Json | None
    server: int | None
    why: str


def rows() -> Iterator[Row]:
    """Every row of every table of the page."""
    for table in _TABLE.findall(PAGE.read_text(encoding="utf-8")):
        head, _, *lines = table.splitlines()
        for line in lines:
            yield _row(dict(zip(_cells(head), _cells(line), strict=True)))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def _row(cells: dict[str, str]) -> Row:
    def value(key: str) -> Any:
        return json.loads(cells.get(key, "").strip("`") or "null")

    asked, there = value("asked"), value("there is")
    code = cells["server"]
    return Row(
        asked={"name": "c", **(there or {}), **asked},
        stream={"name": "S", "subjects": ["orders.>"], **(value("stream") or {})},
        beside=value("beside"),
        there={"name": "c", **there} if there is not None else None,
        server=None if code == NOT_REFUSED else int(code),
        why=cells["why"],
    )


def ours(row: Row) -> tuple[int | None, str]:
    """The code and the words of our first refusal."""
    consumer, mistakes = read_model(ConsumerConfig, row.asked, ())
    if consumer is None:
        return INVALID_JSON, mistakes[0].text
    beside = [ConsumerConfig(**row.beside)] if row.beside else []
    existing = ConsumerConfig(**row.there) if row.there else None
    found = next(refusals(consumer, StreamConfig(**row.stream), beside, existing), None)
    return (found.code, _CODE.sub("", found.text)) if found else (None, "")
