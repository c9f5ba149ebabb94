"""Reading what is kept as JSON: hostile content is an error like any other, and no flipped bit another number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NoReturn

_KEY = "check"


def parsed(content: bytes | str) -> Any:
    """The value of a JSON text that somebody else may have written.

    Raises:
        ValueError: it is none, or none that a careful writer makes: nested too deep, with numbers without end.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # What Python says of integers with too many digits ends with advice to programmers.
        raise ValueError(str(error).partition(";")[0]) from None


def checked(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record, with a check of all of it."""
    return {**record, _KEY: _check(record)}


def unchecked(record: dict[str, Any]) -> dict[str, Any]:
    """The record without its check; one that was written without is taken as it is.

    Raises:
        ValueError: it is not what was written.
    """
    said = {name: value for name, value in record.items() if name != _KEY}
    if _KEY in record and record[_KEY] != _check(said):
        raise ValueError("it is not what was written")
    return said


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _check(record: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
