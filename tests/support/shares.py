"""The share of all tests that `make test` tries: what two formats would both be tried with, on one of them by turns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

THOROUGH = os.environ.get("RETENTION_THOROUGH") == "all"
"""Whether everything is tried with everything: `make thorough`."""
FORMATS = ("delta", "parquet")
_FORMAT = re.compile(rf"(?<=[\[-])({'|'.join(FORMATS)})(?=[\]-])")


def left_out(tests: Iterable[str]) -> set[str]:
    """The names among those of tests that differ in the format alone, all but one of them by turns."""
    groups: dict[str, list[str]] = {}
    for test in tests:
        groups.setdefault(_FORMAT.sub("*", test, count=1), []).append(test)
    alike = [group for group in groups.values() if len(group) > 1]
    return {
        test
        for turn, group in enumerate(alike)
        for number, test in enumerate(group)
        if number != turn % len(group)
    }
