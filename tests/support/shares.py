"""The share of tests in `make test`, by their names; `make long NAME=thorough` runs all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

THOROUGH = os.environ.get("RETENTION_THOROUGH") == "all"
"""Whether all combinations are tested: `make long NAME=thorough`."""
FORMATS = ("delta", "parquet")
THIRD = 3
NINTH = 9
"""Odd, as `THIRD`, because formats alternate: an even number would keep tests of one format."""
_FORMAT = re.compile(rf"(?<=[\[-])({'|'.join(FORMATS)})(?=[\]-])")


def all_but_one_format(tests: Iterable[str]) -> set[str]:
    """Of names that differ only in the format, all except one, alternating."""
    return _all_but_one(tests, lambda test: _FORMAT.sub("*", test, count=1))


def all_but_one_case(tests: Iterable[str]) -> set[str]:
    """Of the cases of a test function, all except one, alternating."""
    return _all_but_one(tests, lambda test: test.partition("[")[0])


def all_but_a_third(tests: Iterable[str]) -> set[str]:
    """All except the first, fourth, seventh, ... test of each file."""
    files = _grouped(tests, lambda test: test.partition("::")[0])
    return {test for file in files for number, test in enumerate(file) if number % THIRD}


def all_but_a_ninth(tests: Iterable[str]) -> set[str]:
    """All except the first, tenth, nineteenth, ... test of each folder in `tests`."""
    folders = _grouped(tests, lambda test: test.split("/")[1])
    return {test for folder in folders for at, test in enumerate(folder) if at % NINTH}


def _all_but_one(tests: Iterable[str], kind: Callable[[str], str]) -> set[str]:
    alike = [group for group in _grouped(tests, kind) if len(group) > 1]
    return {
        test
        for turn, group in enumerate(alike)
        for number, test in enumerate(group)
        if number != turn % len(group)
    }


def _grouped(tests: Iterable[str], kind: Callable[[str], str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for test in tests:
        groups.setdefault(kind(test), []).append(test)
    return list(groups.values())
