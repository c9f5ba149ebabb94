"""The tables of misconfigured consumers in refusals.md, and our refusals of their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from retention.config.checks.consumer import consumer_refusals
from retention.config.consumer import ConsumerConfig
from retention.config.error_report import read_model
from retention.config.stream import StreamConfig
from retention.consumers.subscription import Subscription, find_stream, subscription_refusals
from retention.errors import UsageError

TABLES = Path(__file__).with_name("refusals.md")
INVALID_JSON = 10025
NOT_REFUSED = "none"
_TABLE = re.compile(r"^\| asked \|.*\n\|[-|]+\|\n(?:\|.*\n)+", re.M)
_SUBSCRIBED = re.compile(_TABLE.pattern.replace("asked", "subscribed"), re.M)
_CODE = re.compile(r" \(server error \d+\)$")

Json = dict[str, Any]

ORDERS: Json = {"name": "S", "subjects": ["orders.>"]}


@dataclass(frozen=True)
class Row:
    """A refused request: its stream, the existing consumer, and the reason."""

    asked: Json
    stream: Json
    beside: Json | None
    there: Json | None
    server: int | None
    why: str


def rows() -> Iterator[Row]:
    """Every row of every table of requests."""
    for table in _TABLE.findall(TABLES.read_text(encoding="utf-8")):
        head, _, *lines = table.splitlines()
        for line in lines:
            yield _row(dict(zip(_cells(head), _cells(line), strict=True)))


def subscriptions() -> Iterator[Row]:
    """Every row of the table of subscriptions; these are not sent to a server."""
    for line in _SUBSCRIBED.findall(TABLES.read_text(encoding="utf-8"))[0].splitlines()[2:]:
        asked, there, why = _cells(line)
        existing = json.loads(there.strip("`") or "null")
        yield Row(json.loads(asked.strip("`")), ORDERS, None, existing, None, why)


def refusal_of(row: Row) -> str:
    """The text of our first refusal of a subscription."""
    try:
        wanted = TypeAdapter(Subscription).validate_python(row.asked)
        stream = find_stream(wanted, [StreamConfig(**ORDERS)])
    except UsageError as error:
        return str(error)
    existing = ConsumerConfig(**{"name": "c", **row.there}) if row.there is not None else None
    return next(subscription_refusals(wanted, stream, existing)).text


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def _row(cells: dict[str, str]) -> Row:
    def value(key: str) -> Any:
        return json.loads(cells.get(key, "").strip("`") or "null")

    asked, there = value("asked"), value("there is")
    code = cells["server"]
    return Row(
        asked={"name": "c", **(there or {}), **asked},
        stream={**ORDERS, **(value("stream") or {})},
        beside=value("beside"),
        there={"name": "c", **there} if there is not None else None,
        server=None if code == NOT_REFUSED else int(code),
        why=cells["why"],
    )


def ours(row: Row) -> tuple[int | None, str]:
    """The code and the text of our first refusal."""
    consumer, mistakes = read_model(ConsumerConfig, row.asked, ())
    if consumer is None:
        return INVALID_JSON, mistakes[0].text
    beside = [ConsumerConfig(**row.beside)] if row.beside else []
    existing = ConsumerConfig(**row.there) if row.there else None
    found = next(consumer_refusals(consumer, StreamConfig(**row.stream), beside, existing), None)
    return (found.code, _CODE.sub("", found.text)) if found else (None, "")
