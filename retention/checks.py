"""Checks of what is kept as JSON: a flipped bit must not become another number that is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_KEY = "check"


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


def _check(record: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
