"""What `make test` tries of all that there is to try, and `make thorough` without exception."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

THOROUGH = os.environ.get("RETENTION_THOROUGH") == "all"
"""Whether everything is tried with everything: `make thorough`."""
FORMATS = ("delta", "parquet")


def on_formats_by_turns(cases: Iterable[Any], formats: Sequence[str] = FORMATS) -> list[Any]:
    """A parameter set (format, case) for each case: on one format, by turns; in `make thorough` on every format.

    A mapping's cases are its values, called after their keys.
    """
    named = cases.items() if isinstance(cases, dict) else ((None, case) for case in cases)
    return [
        pytest.param(format_, case, id=None if name is None else f"{format_}-{name}")
        for number, (name, case) in enumerate(named)
        for format_ in (formats if THOROUGH else [formats[number % len(formats)]])
    ]
