"""`python -m benchmarks.year`: a year of hourly publishes, with retain, compact and reclaim every night."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparing import choices, say
from benchmarks.year.clock import compiled
from benchmarks.year.workloads import GRACE, HISTORY, STREAM, WORKLOADS

FORMATS = ("delta", "parquet")
STEPS = ("retain", "compact", "reclaim", "publish")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Pace:
    """The duration of a simulation, and its amount of messages."""

    days: int = 365
    messages: int = 90
    """Messages per publish."""
    hours_apart: int = 1
    """Hours between publishes."""


def run(place: Path, name: str, format_: str, pace: Pace) -> dict[str, Any]:
    """Simulate a stream, in a process under the manual clock.

    Raises:
        subprocess.CalledProcessError: there is no C compiler, or a pass kept wrong messages; see the output.
    """
    warehouse = place / f"{name}-{format_}"
    configure(warehouse, name, format_)
    numbers = [pace.messages, pace.days, pace.hours_apart]
    lived = subprocess.run(
        [sys.executable, "-m", "benchmarks.year.life", str(warehouse), name, *map(str, numbers)],
        env=compiled(place),
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    figures: dict[str, Any] = json.loads(lived.stdout)
    return {"workload": name, "format": format_} | asdict(pace) | figures


def configure(warehouse: Path, name: str, format_: str) -> None:
    """Make a warehouse with the configuration of the simulated stream."""
    warehouse.mkdir(parents=True)
    kept = f"format: {format_}, grace: {GRACE}, history: {HISTORY}, compact: true"
    stream = f'{{name: {STREAM}, subjects: ["year.>"], {kept}, {WORKLOADS[name].settings}}}'
    (warehouse / "retention.yaml").write_text(f"streams:\n  - {stream}\n", encoding="utf-8")


def table(figures: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a Markdown table: a row for each month, and the steadiness of seconds."""
    yield f"### `{figures['workload']}`, {figures['format']}"
    yield ""
    yield (
        "| day | messages | files | MB | of it in grace | outside grace, times live | written again, times | "
        "evidence kB | removed messages in it | retain s | compact s | reclaim s | publish s |"
    )
    yield "|" + "---|" * 13
    for month in figures["months"]:
        seconds = " | ".join(f"{month['spent'][step]['cpu_seconds']:.3f}" for step in STEPS)
        yield (
            f"| {month['days']} | {month['messages']:,} | {month['files']:,} | {month['bytes'] / 1e6:.1f} | "
            f"{month['grace_bytes'] / 1e6:.1f} | {month['outside_grace']:.2f} | {month['amplification']:.2f} | "
            f"{month['evidence']['bytes'] / 1e3:.1f} | {month['evidence']['messages']:,} | "
            f"{seconds} |"
        )
    ratios = " | ".join(f"{ratio:.2f}" for ratio in steadiness(figures["months"]).values())
    yield f"| last month, times the second | | | | | | | | | {ratios} |"
    yield ""


def steadiness(months: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Step → the ratio of its seconds in the last month to those in the second; in the first the stream fills."""
    second, last = months[min(1, len(months) - 1)], months[-1]
    return {
        step: last["spent"][step]["cpu_seconds"] / second["spent"][step]["cpu_seconds"]
        for step in STEPS
    }


def _write(place: Path, lives: Sequence[Mapping[str, Any]]) -> None:
    """Write the figures of simulations as JSON, without single nights."""
    kept = [{name: of[name] for name in of if name != "nights"} for of in lives]
    place.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run the simulations, and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.year", description=__doc__)
    parser.add_argument("--days", type=int, default=Pace.days)
    parser.add_argument("--messages", type=int, default=Pace.messages, help="of a publish")
    parser.add_argument("--hours-apart", type=int, default=Pace.hours_apart, help="publishes")
    parser.add_argument("--workloads", type=choices(tuple(WORKLOADS)), default=tuple(WORKLOADS))
    parser.add_argument("--formats", type=choices(FORMATS), default=FORMATS)
    parser.add_argument("--directory", type=Path, help="where the warehouses lie")
    parser.add_argument("--output", type=Path, help="where the months go, as JSON")
    options = parser.parse_args()
    pace, lives = Pace(options.days, options.messages, options.hours_apart), []
    with tempfile.TemporaryDirectory(prefix="year-", dir=options.directory) as directory:
        for name in options.workloads:
            for format_ in options.formats:
                say(f"{name}, {format_}")
                lives.append(run(Path(directory), name, format_, pace))
                print("\n".join(table(lives[-1])), flush=True)
                if options.output is not None:
                    _write(options.output, lives)
    return 0


if __name__ == "__main__":
    sys.exit(main())
