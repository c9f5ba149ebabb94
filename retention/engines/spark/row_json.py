"""A whole row as JSON: the same text under all settings of the session, including its time zone."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.errors import UsageError

_OPTIONS = {"ignoreNullFields": "false", "pretty": "false", "locale": "en-US", "timeZone": "UTC"}
_AS_THEY_ARE = T.StringType | T.BinaryType | T.BooleanType | T.NumericType | T.NullType
_SECOND_US, _DAY_US = 1_000_000, 86_400_000_000
_LAST_YEAR = 9999


def row_json(rows: DataFrame) -> Column:
    """All columns of a row as one JSON object, in their order; a missing value is null.

    Timestamps are RFC 3339 in UTC with six decimals, without `Z` if they have no zone. Dates are `YYYY-MM-DD`, bytes
    base64, decimals numbers with all their digits; the entries of maps are in key order.

    Raises:
        UsageError: a column's type has no JSON form that is independent of settings.
    """
    fields = [
        _plain(F.col(f"`{field.name}`"), field.dataType, field.name).alias(field.name)
        for field in rows.schema
    ]
    return F.to_json(F.struct(*fields), _OPTIONS)


def _plain(value: Column, kind: T.DataType, name: str) -> Column:
    """A value with only one form in JSON; `name` is the column's name, for the error."""
    if isinstance(kind, _AS_THEY_ARE):
        return value
    if isinstance(kind, T.DatetimeType):
        return _moment(value, kind, name)
    match kind:
        case T.StructType(fields=fields):
            inner = [_plain(value[f.name], f.dataType, name).alias(f.name) for f in fields]
            return F.when(value.isNotNull(), F.struct(*inner))
        case T.ArrayType(elementType=element):
            return F.transform(value, lambda each: _plain(each, element, name))
        case T.MapType(keyType=T.StringType(), valueType=held):
            entries = F.array_sort(F.map_entries(value))
            pairs = F.transform(
                entries, lambda pair: F.struct(pair["key"], _plain(pair["value"], held, name))
            )
            return F.map_from_entries(pairs)
        case _:
            raise _without_form(kind, name)


def _moment(value: Column, kind: T.DataType, name: str) -> Column:
    """A date or a timestamp in RFC 3339; `name` is the column's name, for the error."""
    match kind:
        case T.TimestampType():
            micros = F.unix_micros(value)
            rest = F.pmod(micros, F.lit(_DAY_US))
            day = ((micros - rest) / _DAY_US).cast("int")
            return F.concat(_time(F.date_from_unix_date(day), rest), F.lit("Z"))
        case T.TimestampNTZType():
            seconds = F.hour(value) * 3600 + F.minute(value) * 60
            exact = seconds + F.extract(F.lit("SECOND"), value)
            return _time(F.to_date(value), (exact * _SECOND_US).cast("bigint"))
        case T.DateType():
            return _date(value)
        case _:
            raise _without_form(kind, name)


def _without_form(kind: T.DataType, name: str) -> UsageError:
    return UsageError(
        f"--payload all: the column {name} holds {kind.simpleString()}, which has no form of its own in JSON; nothing "
        "was read; say what becomes of it with --column payload=SQL"
    )


def _time(date: Column, rest: Column) -> Column:
    """A date and its microseconds of the day, in RFC 3339."""
    seconds = F.floor(rest / _SECOND_US)
    parts = (F.floor(seconds / 3600), F.floor(seconds / 60) % 60, seconds % 60)
    hour, minute, second = (F.lpad(part.cast("string"), 2, "0") for part in parts)
    decimals = F.lpad((rest % _SECOND_US).cast("string"), 6, "0")
    clock = (F.lit("T"), hour, F.lit(":"), minute, F.lit(":"), second, F.lit("."), decimals)
    return F.concat(_date(date), *clock)


def _date(value: Column) -> Column:
    year = F.year(value)
    digits = F.abs(year).cast("string")
    sign = F.when(year < 0, "-").when(year > _LAST_YEAR, "+").otherwise("")
    padded = F.when(F.length(digits) > 4, digits).otherwise(F.lpad(digits, 4, "0"))  # noqa: PLR2004
    month, day = (F.lpad(part(value).cast("string"), 2, "0") for part in (F.month, F.day))
    return F.concat(sign, padded, F.lit("-"), month, F.lit("-"), day)
