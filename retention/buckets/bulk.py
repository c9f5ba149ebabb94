"""Bulk values: JSON lines of keys and values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from retention.buckets.entry import Value
from retention.errors import UsageError
from retention.formats.jsonl import octets_of, open_lines, refuse_unknown, text_of_line

_KEYS = frozenset(("key", "value", "value_b64"))


def read_values(source: Path | Iterable[bytes]) -> Iterator[tuple[str, Value]]:
    """The keys and values of JSON lines, in their order: `key`; `value`, text or other JSON; or `value_b64`.

    Args:
        source: a file of lines, or the lines.

    Raises:
        UsageError: a line is not such an object; the error names its number.
    """
    with open_lines(source) as lines:
        for number, line in enumerate(lines, start=1):
            if not isinstance(line, bytes | str) or not line.strip():
                continue
            try:
                yield _pair(json.loads(text_of_line(line)))
            except (ValueError, RecursionError) as error:
                raise UsageError(
                    f"line {number}: {error}; nothing was written; correct it and put all values again"
                ) from error


def _pair(given: object) -> tuple[str, Value]:
    if not isinstance(given, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (the caller adds the line's number)
    refuse_unknown(given, _KEYS)
    key = given.get("key")
    if not isinstance(key, str):
        raise ValueError("key is required and must be text")  # noqa: TRY004
    if "value_b64" in given:
        return key, octets_of(given, "value") or b""
    if "value" not in given:
        raise ValueError("it has neither value nor value_b64")
    value: Value = given["value"]
    return key, value
