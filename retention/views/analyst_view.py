"""The statement of a view for analysts: the messages of a Delta stream as columns of text, numbers and instants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from retention.errors import UsageError
from retention.storage.places import delta_name

_PATH = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_TYPE = re.compile(
    r"string|boolean|int|bigint|double|date|timestamp|decimal\(\d+, ?\d+\)", re.IGNORECASE
)
_TIME = "timestamp_micros(ts_ns DIV 1000) AS time"
_TEXT = "CAST(payload AS STRING)"


def view_statement(
    name: str, location: str, fields: Sequence[str] = (), *, is_topic: bool = False
) -> str:
    """The statement of Spark that makes a view of a Delta stream.

    Args:
        name: the view, with or without its catalog and schema.
        location: the directory of the stream's table.
        fields: `FIELD:TYPE`, each a value of a JSON payload; `customer.id:bigint` is inside another.
        is_topic: whether the messages have partitions and offsets, and no subjects.

    Raises:
        UsageError: one of `fields` is of another form.
    """
    first = ("partition", "seq AS offset") if is_topic else ("seq", "subject")
    columns = (*first, _TIME, f"{_TEXT} AS payload", *_json_columns(fields))
    selected = ",\n  ".join(columns)
    quoted = ".".join(map(_quoted, name.split(".")))
    return f"CREATE OR REPLACE VIEW {quoted} AS SELECT\n  {selected}\nFROM {delta_name(location)}"


def _json_columns(fields: Sequence[str]) -> Iterator[str]:
    """A column for each field: null where the payload lacks it, or has a value of another type."""
    for field in fields:
        path, _, type_ = field.rpartition(":")
        if not (_PATH.fullmatch(path) and _TYPE.fullmatch(type_)):
            raise UsageError(
                f"--json {field}: is not FIELD:TYPE, such as total:double or customer.id:bigint; a type is string, "
                "boolean, int, bigint, double, decimal(P,S), date or timestamp"
            )
        value = f"get_json_object({_TEXT}, '$.{path}')"
        yield f"TRY_CAST({value} AS {type_.upper()}) AS {_quoted(path)}"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
