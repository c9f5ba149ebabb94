"""The JSON of a file's statistics: decimals with every digit, and text without escapes.

A rounded bound lets readers skip a file with matching rows; so does deltalake's reading of escapes from U+20000 on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def parse(text: str) -> dict[str, Any]:
    """The statistics of a text, with a `Decimal` for each number that is no integer."""
    return json.loads(text, parse_float=Decimal)


def encode(value: Any) -> str:
    r"""The text of statistics, or of a part of them.

    >>> encode({"max": Decimal("12345678901234567890.25"), "text": "\U00020000"})
    '{"max":12345678901234567890.25,"text":"𠀀"}'
    """
    if isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{encode(name)}:{encode(each)}" for name, each in value.items()) + "}"
        )
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
