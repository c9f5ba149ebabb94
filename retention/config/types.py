"""The types of values in a configuration: how each is parsed, refused, formatted and described to editors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from retention.core.iggy_units import parse_expiry, parse_topic_size
from retention.core.units import (
    DURATION_PATTERN,
    INT64_MAX,
    SIZE_PATTERN,
    format_instant,
    parse_duration,
    parse_instant,
    parse_size,
)
from retention.errors import UsageError

UNLIMITED = -1
"""The server's value for a disabled limit."""
INT32_MAX = 2**31 - 1
UINT64_MAX = 2**64 - 1
INVALID_CONFIG = 10052
MAX_DESCRIPTION_BYTES = 4 * 1024
MAX_METADATA_BYTES = 128 * 1024


@dataclass(frozen=True)
class ConfigRefusal:
    """A reason why a configuration is refused, with the keys that it depends on, the offending one first."""

    keys: tuple[str, ...]
    text: str
    code: int | None = None
    """The server's error code; None: only this program refuses it."""
    within: tuple[str | int, ...] = ()
    """The place of the mapping with the offending key, relative to the refused model."""


def refusal(keys: str, text: str, code: int | None = INVALID_CONFIG) -> ConfigRefusal:
    """A refusal by the server, with its error code, or by us (None)."""
    sentence = text if code is None else f"{text} (server error {code})"
    return ConfigRefusal(tuple(keys.split()), sentence, code)


def refusals_error(refusals: Iterable[ConfigRefusal]) -> PydanticCustomError:
    """The refusals of one model as a single error; its context keeps them as a list under `refusals`."""
    listed = list(refusals)
    text = "; ".join(f"{_place(reason)}: {reason.text}" for reason in listed)
    return PydanticCustomError("refusals", "{text}", {"text": text, "refusals": listed})


def _place(refusal: ConfigRefusal) -> str:
    return ".".join(map(str, (*refusal.within, refusal.keys[0])))


class ConfigMapping(BaseModel):
    """A mapping in a configuration: immutable, without unknown keys; an empty value counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


def refusal_error(text: str) -> PydanticCustomError:
    """A refusal by us, for a validator to raise."""
    return PydanticCustomError("refused", "{text}", {"text": text})


def _reader(parse: Callable[[Any], int], low: int, high: int) -> BeforeValidator:
    def read(value: object) -> int:
        try:
            number = parse(value)
        except UsageError as error:
            raise refusal_error(str(error)) from error
        if not low <= number <= high:
            raise refusal_error(f"{value!r} is out of range, {low} to {high}")
        return number

    return BeforeValidator(read)


def parse_count(value: object) -> int:
    """An integer as written.

    Raises:
        UsageError: the value is not an integer.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    example = int(value) if isinstance(value, float) and value.is_integer() else 1_000_000
    raise UsageError(f"{value!r} is not a count: write an integer, such as {example}")


def _limit(parse: Callable[[Any], int], high: int) -> BeforeValidator:
    """A limit of the server: 0 and everything below -1 mean -1, unlimited (STREAM.CREATE)."""

    def read(value: object) -> int:
        number = parse(value)
        return number if number > 0 else UNLIMITED

    return _reader(read, UNLIMITED, high)


_TAG = re.compile(r"[^\s,]{1,64}")
_SHARE = re.compile("[0-9]{1,3}%")
_ZERO_TIME = "0001-01-01T00:00:00Z"


def _drop_zero_time(value: object) -> object:
    """None for Go's zero time, which means that a time is not set; every other value unchanged."""
    return None if value == _ZERO_TIME else value


def _parse_everyone(value: object) -> tuple[str, ...] | None:
    if value == "all":
        return None
    names = tuple(value) if isinstance(value, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise refusal_error(
            f"{value!r} is neither all nor a list of names: write all, or [billing, audit]"
        )
    return tuple(dict.fromkeys(names))


def _parse_tags(value: object) -> tuple[str, ...]:
    tags = tuple(value) if isinstance(value, (list, tuple)) else ()
    written = value == [] or bool(tags)
    if not written or not all(isinstance(tag, str) and _TAG.fullmatch(tag) for tag in tags):
        raise refusal_error(
            f"{value!r} is not a list of tags: write words without blanks and commas, such as [pii, eu]"
        )
    return tuple(dict.fromkeys(tags))


def _parse_span(value: object) -> int:
    return 0 if value == "off" else parse_duration(value)  # type: ignore[arg-type]


def _parse_kept(value: object) -> int:
    return INT64_MAX if value == "forever" else parse_duration(value)  # type: ignore[arg-type]


def _parse_share(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _SHARE.fullmatch(value):
        return int(value.removesuffix("%"))
    raise UsageError(f"{value!r} is not a share: write whole percent, such as 20%")


_INTEGER = {"type": "integer"}
_DURATION_SCHEMA = WithJsonSchema(
    {
        "anyOf": [_INTEGER, {"type": "string", "pattern": f"^{DURATION_PATTERN}$"}],
        "description": "a duration: 30d, 1h30m, 1.5s, or an integer of nanoseconds",
    }
)
_SIZE_SCHEMA = WithJsonSchema(
    {
        "anyOf": [_INTEGER, {"type": "string", "pattern": f"^{SIZE_PATTERN}$"}],
        "description": "a size: 10GiB, 1.5 TiB, or an integer of bytes",
    }
)
_SPAN_SCHEMA = WithJsonSchema(
    {
        "anyOf": [_INTEGER, {"type": "string", "pattern": f"^(off|{DURATION_PATTERN})$"}],
        "description": "a duration, or off",
    }
)
_KEPT_SCHEMA = WithJsonSchema(
    {
        "anyOf": [_INTEGER, {"type": "string", "pattern": f"^(forever|{DURATION_PATTERN})$"}],
        "description": "a duration, or forever",
    }
)

Flag = Annotated[bool, Strict()]
Duration = Annotated[int, _reader(parse_duration, -INT64_MAX, INT64_MAX), _DURATION_SCHEMA]
"""Nanoseconds."""
Grace = Annotated[int, _reader(parse_duration, 0, INT64_MAX), _DURATION_SCHEMA]
"""Nanoseconds, not negative."""
Kept = Annotated[int, _reader(_parse_kept, 0, INT64_MAX), _KEPT_SCHEMA]
"""Nanoseconds, not negative; the largest 64-bit integer means forever."""
Span = Annotated[int, _reader(_parse_span, 0, INT64_MAX), _SPAN_SCHEMA]
"""Nanoseconds; 0 means off."""
Size = Annotated[int, _reader(parse_size, 1, INT64_MAX), _SIZE_SCHEMA]
"""Bytes, at least one."""
Budget = Annotated[int, _reader(parse_size, 0, INT64_MAX), _SIZE_SCHEMA]
"""Bytes, at least 0."""
Count = Annotated[int, _reader(parse_count, -INT64_MAX, INT64_MAX), WithJsonSchema(_INTEGER)]
Several = Annotated[int, _reader(parse_count, 2, INT32_MAX), WithJsonSchema(_INTEGER)]
"""A count of at least two."""
Minimum = Annotated[int, _reader(parse_count, 0, INT64_MAX), WithJsonSchema(_INTEGER)]
"""A count, not negative."""
Sequence = Annotated[int, _reader(parse_count, 0, UINT64_MAX), WithJsonSchema(_INTEGER)]
Share = Annotated[
    int,
    _reader(_parse_share, 0, 100),
    WithJsonSchema(
        {
            "anyOf": [_INTEGER, {"type": "string", "pattern": f"^{_SHARE.pattern}$"}],
            "description": "a share: 20%, or an integer of percent",
        }
    ),
]
"""Percent, from 0 to 100."""
Limit = Annotated[int, _limit(parse_count, INT64_MAX), WithJsonSchema(_INTEGER)]
"""A count, or -1."""
ByteLimit = Annotated[int, _limit(parse_size, INT64_MAX), _SIZE_SCHEMA]
"""Bytes, or -1."""
SmallByteLimit = Annotated[int, _limit(parse_size, INT32_MAX), _SIZE_SCHEMA]
"""Bytes below 2 GiB, or -1."""
Bytes = Annotated[int, _reader(parse_size, -INT64_MAX, INT64_MAX), _SIZE_SCHEMA]
"""Bytes."""
Tags = Annotated[
    tuple[str, ...],
    BeforeValidator(_parse_tags),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": f"^{_TAG.pattern}$"}}),
]
"""Words to select by, each once."""
Everyone = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_parse_everyone),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "all"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ],
            "description": "all, or a list of names",
        }
    ),
]
"""Names, or None: everyone."""
Instant = Annotated[
    int,
    _reader(parse_instant, -INT64_MAX - 1, INT64_MAX),
    PlainSerializer(format_instant, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Nanoseconds since the epoch, written as RFC 3339."""
Moment = Annotated[Instant | None, BeforeValidator(_drop_zero_time)]
"""An instant, or None, which Go's zero time also means."""
Expiry = Annotated[
    int,
    _reader(parse_expiry, 0, UINT64_MAX),
    WithJsonSchema(
        {
            "type": ["integer", "string"],
            "description": "never, server_default, a duration as humantime reads it, or an integer of microseconds",
        }
    ),
]
"""Iggy's wire code: microseconds, 0 for the server's default, 2^64 - 1 for never."""
TopicSize = Annotated[
    int,
    _reader(parse_topic_size, 0, UINT64_MAX),
    WithJsonSchema(
        {
            "type": ["integer", "string"],
            "description": "unlimited, server_default, a size, or an integer of bytes",
        }
    ),
]
"""Iggy's wire code: bytes, 0 for the server's default, 2^64 - 1 for unlimited."""
