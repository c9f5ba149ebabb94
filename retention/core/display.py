"""Values that display themselves: as a line of text in a terminal, and as a table of their fields in a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from retention.core.markup import card, escape, shortened, table, text_table
from retention.core.payload_preview import preview
from retention.core.units import SECOND, format_duration, format_instant, format_size
from retention.core.wording import capitalized
from retention.errors.printable import visible

Item = TypeVar("Item")

_DURATION = re.compile(r"(grace|ttl|age|wait|window|behind|lag)(_period)?_ns$")
_SIZE = re.compile(r"(^|_)(bytes|size)(_|$)")
_WORDS, _SUFFIX = re.compile(r"(?<=[a-z])(?=[A-Z])"), re.compile(r"(Report|Details|Info)$")
_TITLES = ("stream", "table", "bucket", "run")
"""The fields that can name a value, the first one that it has."""
_NAMES = {"seq": "sequence", "msgs": "messages", "num": "number of", "ts": "time", "bytes": "size"}


class Displayed:
    """A value that displays its fields; `display_fields` has others, if its own are not for people."""

    def display_fields(self) -> Mapping[str, Any]:
        """The fields to display, by name."""
        as_json = getattr(self, "as_json", None)
        return vars(self) if as_json is None else as_json()

    def _kind(self) -> str:
        """The name of its class as words."""
        name = next(each.__name__ for each in type(self).__mro__ if each.__name__[:5] != "Shown")
        return _WORDS.sub(" ", _SUFFIX.sub("", name)).lower()

    def __repr__(self) -> str:
        return fields_text(self._kind(), self.display_fields())

    def _repr_html_(self) -> str:
        return fields_html(self._kind(), self.display_fields())


class DisplayedDict(dict[str, Any]):
    """A record that displays itself; otherwise a dictionary."""

    def display_fields(self) -> Mapping[str, Any]:
        """The fields to display, by name."""
        return self

    def _kind(self) -> str:
        return str(self.get("kind", "")).replace("_", " ")

    def __repr__(self) -> str:
        return fields_text(self._kind(), self.display_fields())

    def _repr_html_(self) -> str:
        return fields_html(self._kind(), self.display_fields())


class DisplayedList(list[Item]):
    """Values that display themselves as the rows of a table; otherwise a list."""

    title = ""

    def display_rows(self) -> list[Mapping[str, Any]]:
        """The fields of each value to display, by name."""
        return [
            each.display_fields() if isinstance(each, Displayed) else vars(each) for each in self
        ]

    def __repr__(self) -> str:
        return "\n".join(text_table(*table_of_records(self.display_rows()))) if self else "none"

    def _repr_html_(self) -> str:
        return records_html(self.title, self.display_rows())


def fields_text(kind: str, fields: Mapping[str, Any]) -> str:
    """Fields as one line of text: the kind, the name, then each field that has a value."""
    name, rest = _titled(fields)
    title = shortened(name)
    pairs = ", ".join(
        shortened(value) if label == "outcome" else f"{label} {shortened(value)}"
        for label, value in _pairs(rest)
    )
    return visible(": ".join(filter(None, (" ".join(filter(None, (kind, title))), pairs))))


def fields_html(kind: str, fields: Mapping[str, Any]) -> str:
    """Fields as a card; a list of records is a table of its own below the others."""
    title, rest = _titled(fields)
    lists = {name: value for name, value in rest.items() if _is_records(value)}
    parts = [table((), [(capitalized(label), value) for label, value in _pairs(rest)], ())]
    for name, records in lists.items():
        head, rows, numbers = table_of_records(records)
        parts.append(f"<div>{escape(capitalized(_label(name)))}</div>")
        parts.append(table([capitalized(label) for label in head], rows, numbers))
    return card(title or kind, kind if title else "", parts)


def records_html(title: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Records as a card with a row for each."""
    if not records:
        return card(title or "none", "none" if title else "", [])
    head, rows, numbers = table_of_records(records)
    return card(
        title, f"{len(rows):,}", [table([capitalized(label) for label in head], rows, numbers)]
    )


def shown_value(name: str, value: Any) -> str:
    """The value of a field for people, by the field's name: instants, durations, sizes, numbers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key} {shown_value(str(key), each)}" for key, each in value.items() if _has(each)
        )
    if isinstance(value, list | tuple):
        return "; ".join(shown_value(name, each) for each in value)
    if isinstance(value, bytes):
        return preview(value)
    return shown_value("", value.as_json()) if hasattr(value, "as_json") else str(value)


def readable_instant(ns: int) -> str:
    """An instant rounded down to the second, with a space before its time of day."""
    return format_instant(ns // SECOND * SECOND).replace("T", " ")


def _number(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f} s" if name.endswith("seconds") else f"{value:,.2f}"
    if _DURATION.search(name):
        return format_duration(value)
    if name.endswith("_ns"):
        return readable_instant(value)
    return format_size(value) if _SIZE.search(name) else f"{value:,}"


def _titled(fields: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name of a value, and its other fields."""
    key = next((name for name in _TITLES if isinstance(fields.get(name), str)), None)
    if key is None:
        return "", fields
    return fields[key], {name: value for name, value in fields.items() if name != key}


def _pairs(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (_label(name), shown_value(name, value))
        for name, value in fields.items()
        if _has(value) and not _is_records(value)
    ]


def _has(value: Any) -> bool:
    """Whether a field is worth a line: it has a value, which is not empty."""
    return value is not None and value is not False and value not in ("", (), [], {})


def _is_records(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def _label(name: str) -> str:
    words = name.removesuffix("_ns").split("_")
    return " ".join(_NAMES.get(word, word) for word in words)


def table_of_records(
    records: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[list[str]], set[int]]:
    """Records as a table: the columns that any has a value for, their rows, and the columns of numbers."""
    names = [
        name
        for name in dict.fromkeys(name for record in records for name in record)
        if any(_has(record.get(name)) for record in records)
    ]
    rows = [
        [shown_value(name, record[name]) if record.get(name) is not None else "" for name in names]
        for record in records
    ]
    numbers = {
        at
        for at, name in enumerate(names)
        if not name.endswith("_ns")
        and all(isinstance(record.get(name), int | float | None) for record in records)
    }
    return [_label(name) for name in names], rows, numbers
