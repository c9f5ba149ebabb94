"""The share of tests in `make test`: one format of two, and a third of those on Spark or an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

THOROUGH = os.environ.get("RETENTION_THOROUGH") == "all"
"""Whether all combinations are tested: `make long NAME=thorough`."""
FORMATS = ("delta", "parquet")
THIRD = 3
_FORMAT = re.compile(rf"(?<=[\[-])({'|'.join(FORMATS)})(?=[\]-])")


def left_out(tests: Iterable[str]) -> set[str]:
    """The test names to leave out: of names that differ only in the format, all except one, alternating."""
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


def beyond_third(tests: Iterable[str]) -> set[str]:
    """The test names to leave out of a costly kind: all except the first, fourth, seventh, ... of each file."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    return {
        test for several in files.values() for number, test in enumerate(several) if number % THIRD
    }
