"""`python -m benchmarks.reclaim`: what a reclaim costs, by the number of live files and of dead ones."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.data import copy_warehouse
from benchmarks.metadata import END, OPEN, SPAN, make_stream, measure
from retention import open_warehouse
from retention.stores.layout import Layout

STREAM = "BIG"
CONTENT = b"x" * 1_000
"""The content of a dead file, which is never read."""
DRY = """
[outcome] = retention.api.warehouse.open_warehouse(place).reclaim(["BIG"]).plan
assert outcome.error is None, outcome.error
dropped = outcome.value.total.files
"""
DONE = DRY.replace(".plan", ".apply()")


def make_dead(folder: Path, live: int, dead: int) -> None:
    """Make a Delta stream of `live` files in the log only, and of `dead` files on disk that a pass removed."""
    make_stream(folder, live + dead)
    config = {"warehouse": ".", "streams": [_rules(live + dead, dead)]}
    (folder / "retention.yaml").write_text(json.dumps(config))
    stream = open_warehouse(folder, engine="local").stream(STREAM)
    plan = stream.plan(END)
    layout = Layout(stream.opened.root, STREAM)
    for path in plan.plan.actions.files["path"].to_pylist():
        for place in (layout.live(path), layout.engine_path("subjects", path)):
            Path(place).parent.mkdir(parents=True)
            Path(place).write_bytes(CONTENT)
    plan.apply()


def _rules(segments: int, dead: int) -> dict[str, object]:
    """The rules by which a pass at `END` drops `dead` of the segments."""
    kept_ns = SPAN - dead * (SPAN // segments) + 1
    return {"name": STREAM, "subjects": ["big.>"], "max_age": f"{kept_ns}ns", "grace": "0s"}


def reclaimed(source: Path, place: Path, runs: int) -> dict[str, float]:
    """As `metadata.measure`, for a reclaim with deletion, each time on a fresh copy."""
    told = []
    for turn in range(runs):
        copy = place / f"copy-{turn}"
        copy_warehouse(source, copy)
        told.append(measure(copy, 0, 1, DONE))
        shutil.rmtree(copy)
    return {name: statistics.median(one[name] for one in told) for name in told[0]}


def _told(files: str, what: str, done: dict[str, float], floor: float) -> None:
    print(
        f"| {files} | {what} | {done['seconds']:.3f} | {done['processor']:.3f} | {done['processor'] / floor:.1f} "
        f"| {done['peak']:.0f} | {done['dropped']:.0f} |",
        flush=True,
    )


def main() -> None:
    """Make streams, measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reclaim", description=__doc__)
    parser.add_argument("--live", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--dead", type=int, nargs="*", default=[1_000, 4_000])
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print(
        "| live and dead files | | seconds | processor seconds | times the opening | peak MiB | files that go |"
    )
    print("|---|---|---|---|---|---|---|")
    for live in asked.live:
        for dead in asked.dead:
            with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
                source, files = Path(directory, "source"), f"{live:,}, {dead:,}"
                make_dead(source, live, dead)
                opened = measure(source, 0, asked.runs, OPEN)
                floor = opened["processor"]
                _told(files, "(the table opened by deltalake, no more)", opened, floor)
                _told(files, "dry", measure(source, 0, asked.runs, DRY), floor)
                _told(files, "deleted", reclaimed(source, Path(directory), asked.runs), floor)


if __name__ == "__main__":
    main()
