"""The types of values that only tables in place have: columns, limits of rows, locations, values of columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from retention.config.error_report import nearest
from retention.config.locations import absolute_location, read_location
from retention.config.types import parse_count, refusal_error
from retention.core.table_policy import Scalar
from retention.core.units import (
    DURATION_PATTERN,
    INT64_MAX,
    SIZE_PATTERN,
    parse_duration,
    parse_size,
)
from retention.errors import UsageError
from retention.storage.places import refused_table

_OFF = "off"
_PART = r"[^\s`.,;(){}=]+|`(?:[^`]|``)+`"
_COLUMN = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")
_PLAIN = re.compile(r"[^\s`.,;(){}=]+")
_OPERATOR = re.compile(r"\s*(?:[<>!=~]|(?:not|like|in|is|between)\s)", re.IGNORECASE)


def parse_column(text: str) -> tuple[str, ...]:
    """The names of a column from the top level down; backticks enclose a name with a dot or a blank.

    Raises:
        UsageError: the text is not of this form.

    >>> parse_column("event.at"), parse_column("`event.at`"), parse_column("`it``s`.at")
    (('event', 'at'), ('event.at',), ('it`s', 'at'))
    """
    if _COLUMN.fullmatch(text):
        return tuple(_unquoted(part) for part in re.findall(_PART, text))
    names = [name.strip() for name in text.split(",")]
    several = len(names) > 1 and all(map(_COLUMN.fullmatch, names))
    remedy = f"[{', '.join(names)}]" if several else f'"{_quoted(text.strip()) or "`a.b`"}"'
    raise UsageError(
        f"{text!r} is not a column: write a name, or event.at for a nested one, with backticks around a name with a "
        f"dot or a blank, such as {remedy}"
    )


def format_column(column: tuple[str, ...]) -> str:
    """A column as `parse_column` reads it."""
    return ".".join(name if _PLAIN.fullmatch(name) else _quoted(name) for name in column)


def _unquoted(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def _quoted(name: str) -> str:
    bare = name.replace("`", "``")
    return f"`{bare}`" if bare else ""


def _read_column(value: object) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value  # of a configuration that was read before
    if not isinstance(value, str):
        raise refusal_error(f"{value!r} is not a column; write the name of one")
    try:
        return parse_column(value)
    except UsageError as error:
        raise refusal_error(str(error)) from error


def _read_columns(value: object) -> tuple[tuple[str, ...], ...]:
    listed = value if isinstance(value, (list, tuple)) else [value]
    return tuple(_read_column(item) for item in listed)


def _read_zone(name: object) -> str:
    try:
        return ZoneInfo(str(name)).key
    except (KeyError, ValueError, OSError):
        close = nearest(str(name), available_timezones())
    raise refusal_error(
        f"{name!r} is not a time zone: write an IANA name, such as {close or 'Europe/Berlin'}"
    )


def _limit(parse: Callable[[Any], int], least: str) -> BeforeValidator:
    """A limit from `least` up; `off` is None, no limit."""

    def read(value: object) -> int | None:
        if value is None or value == _OFF:
            return None
        try:
            number = parse(value)
        except UsageError as error:
            raise refusal_error(f"{error}, or off for no limit") from error
        if not 0 < number <= INT64_MAX:
            raise refusal_error(
                f"{value!r} is out of range: write at least {least}, or off for no limit"
            )
        return number

    return BeforeValidator(read)


def _limit_schema(pattern: str, description: str) -> WithJsonSchema:
    texts = {"type": "string", "pattern": f"^({_OFF}|{pattern})$"}
    return WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, texts], "description": description}
    )


def _read_switch(value: object) -> bool:
    choice = {"on": True, _OFF: False}.get(value) if isinstance(value, str) else value
    if not isinstance(choice, bool):
        raise refusal_error(f"{value!r} is neither on nor off; write one of them")
    return choice


def _read_values(value: object) -> tuple[Scalar, ...]:
    listed = value if isinstance(value, (list, tuple)) else [value]
    if isinstance(value, dict) or (isinstance(value, str) and _OPERATOR.match(value)):
        raise refusal_error(
            f"{value!r} is no equality, and rows are selected by equal values only; write the values, such as [acme, "
            "globex], or a text that begins like this as a list"
        )
    if not listed:
        raise refusal_error("names no value, so no row matches; write the values, such as [acme]")
    return tuple(_scalar(item) for item in listed)


def _scalar(value: object) -> Scalar:
    if isinstance(value, float):
        return Decimal(repr(value))
    if value is None or isinstance(value, (str, int)):
        return value
    raise refusal_error(f"{value!r} is not a value of a column; write text, a number, or null")


def _read_location(text: str) -> str:
    return text if is_catalog_name(text) else read_location(text)


def _read_format(value: object) -> object:
    if value not in ("delta", "parquet"):
        raise refusal_error(
            f"{value!r} is no format of a table in place: write delta for a Delta table, or parquet for a directory of "
            "Parquet files without a log"
        )
    return value


def is_catalog_name(location: str) -> bool:
    """Whether a location is a table's name in a catalog: `catalog.schema.table`."""
    return refused_table(location) is not None


def absolute_table_location(location: str, beside: str) -> str:
    """Resolve the location of a table against the file `beside`; a name in a catalog is unchanged.

    Raises:
        ConfigError: the location would be outside the bucket of that file.
    """
    return location if is_catalog_name(location) else absolute_location(location, beside)


Column = Annotated[
    tuple[str, ...],
    BeforeValidator(_read_column),
    WithJsonSchema(
        {
            "type": "string",
            "description": "a column: event_ts, event.at for a nested one, with backticks around a name with a dot",
        }
    ),
]
Columns = Annotated[
    tuple[tuple[str, ...], ...],
    BeforeValidator(_read_columns),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "a column, or a list of them",
        }
    ),
]
Zone = Annotated[
    str, BeforeValidator(_read_zone), WithJsonSchema({"type": "string", "examples": ["UTC"]})
]
"""The IANA name of a time zone."""
AgeLimit = Annotated[
    int | None,
    _limit(parse_duration, "1ns"),
    _limit_schema(DURATION_PATTERN, "a duration: 30d, 1h30m, or off"),
]
"""Nanoseconds, at least one; None: no limit."""
RowLimit = Annotated[int | None, _limit(parse_count, "1"), _limit_schema("off", "a count, or off")]
"""A count, at least one; None: no limit."""
SizeLimit = Annotated[
    int | None, _limit(parse_size, "1B"), _limit_schema(SIZE_PATTERN, "a size: 10GiB, or off")
]
"""Bytes, at least one; None: no limit."""
Switch = Annotated[
    bool, BeforeValidator(_read_switch), WithJsonSchema({"enum": ["on", "off", True, False]})
]
Values = Annotated[
    tuple[Scalar, ...],
    BeforeValidator(_read_values),
    WithJsonSchema(
        {
            "type": ["string", "number", "boolean", "null", "array"],
            "items": {"type": ["string", "number", "boolean", "null"]},
            "description": "the values, one of which a row has",
        }
    ),
]
TableFormat = Annotated[Literal["delta", "parquet"], BeforeValidator(_read_format)]
TableLocation = Annotated[str, AfterValidator(_read_location)]
"""A path, an `s3://` location, or `catalog.schema.table`."""
