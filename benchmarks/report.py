"""Reports of measurements, as JSON and as Markdown tables: medians, ratios to ours, bytes."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

OURS = "ours"
FIGURES = ("files", "row_groups", "file_bytes", "scan_seconds")
"""Figures of the table after a compaction."""
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"
_LIBRARIES = (
    "pyspark",
    "delta-spark",
    "deltalake",
    "pyiceberg",
    "duckdb",
    "polars",
    "pyarrow",
)


def summary(contender: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summary of one contender's runs of one piece of work; bytes are those of the median run."""
    seconds = sorted(run["seconds"] for run in runs)
    middle = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
    return {
        "contender": contender,
        "seconds": statistics.median(seconds),
        "fastest": seconds[0],
        "slowest": seconds[-1],
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "bytes_read": middle["bytes_read"],
        "bytes_written": middle["bytes_written"],
        "messages": middle["messages"],
        "runs": [run["seconds"] for run in runs],
        **{
            name: statistics.median(run[name] for run in runs) for name in FIGURES if name in middle
        },
    }


def surroundings() -> dict[str, Any]:
    """The machine and the libraries."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "libraries": {name: metadata.version(name) for name in _LIBRARIES if _installed(name)},
    }


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """A table for each piece of work, fastest first."""
    return "\n\n".join(_table(result) for result in results)


def matrix(results: Sequence[Mapping[str, Any]]) -> str:
    """One table of median seconds: a row for each contender, a column for each piece of work."""
    by_task = {
        result["task"]: {one["contender"]: one["seconds"] for one in result["contenders"]}
        for result in results
    }
    names = {name for seconds in by_task.values() for name in seconds}
    lines = [
        f"| {' | '.join(['seconds (times ours)', *(f'`{task}`' for task in by_task)])} |",
        "|---" * (1 + len(by_task)) + "|",
    ]
    for name in sorted(names, key=lambda name: (name != OURS, name)):
        cells = [_cell(seconds, name) for seconds in by_task.values()]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def _cell(seconds: Mapping[str, float], name: str) -> str:
    if name not in seconds:
        return ""
    ratio = f" ({seconds[name] / seconds[OURS]:.2f})" if OURS in seconds and name != OURS else ""
    return f"{seconds[name]:.3f}{ratio}"


def on_page(page: str, document: Mapping[str, Any]) -> str:
    """The page with the figures between its two markers replaced.

    Raises:
        ValueError: the page has no markers.
    """
    before, _, rest = page.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise ValueError(f"the page needs the lines {_BEGIN} and {_END}")
    size, libraries = document["size"], document["libraries"]
    versions = ", ".join(f"{name} {version}" for name, version in libraries.items())
    lines = [
        f"{document['date'][:10]}; {document['system']}; Python {document['python']}, {versions};",
        f"{size['segments']} segments of {size['messages']:,} messages, {document['runs']} counted runs.",
    ]
    figures = "\n".join(lines) + "\n\n" + matrix(document["results"])
    return f"{before}{_BEGIN}\n{figures}\n{_END}{after}"


def _table(result: Mapping[str, Any]) -> str:
    entries = sorted(result["contenders"], key=lambda entry: entry["seconds"])
    ours = next((entry["seconds"] for entry in entries if entry["contender"] == OURS), None)
    lines = [
        f"### `{result['task']}`: {result['title']}",
        "",
        f"{result['messages']:,} messages stay.",
        "",
        "| | seconds (median, fastest to slowest) | times ours | processor seconds | MB read | MB written |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_line(entry, ours) for entry in entries]
    lines += [f"\n{name}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _line(entry: Mapping[str, Any], ours: float | None) -> str:
    name = f"**{entry['contender']}**" if entry["contender"] == OURS else entry["contender"]
    ratio = "" if ours is None else f"{entry['seconds'] / ours:.2f}"
    seconds = f"{entry['seconds']:.3f} ({entry['fastest']:.3f} to {entry['slowest']:.3f})"
    read, written = (_megabytes(entry[key]) for key in ("bytes_read", "bytes_written"))
    cpu = f"{entry['cpu_seconds']:.3f}"
    return f"| {name} | {seconds} | {ratio} | {cpu} | {read} | {written} |"


def _megabytes(count: int | None) -> str:
    return "not counted" if count is None else f"{count / 1e6:,.2f}"


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
