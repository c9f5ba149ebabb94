"""Times of a test run: seconds of each file, and of each worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

SHOWN = 50
"""The number of files to list, slowest first."""


def lines_of(reports: Iterable[Any]) -> Iterator[str]:
    """The lines of the report.

    Args:
        reports: pytest's reports of phases of tests, and others.
    """
    files: Counter[str] = Counter()
    workers: Counter[str] = Counter()
    for report in reports:
        seconds = getattr(report, "duration", None)
        if seconds is not None:
            files[report.nodeid.partition("::")[0]] += seconds
            workers[_worker(report)] += seconds
    yield from (f"{seconds:7.0f} s  {file}" for file, seconds in files.most_common(SHOWN))
    yield ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sorted(workers.items()))


def _worker(report: Any) -> str:
    node = getattr(report, "node", None)
    return "here" if node is None else str(node.gateway.id)
