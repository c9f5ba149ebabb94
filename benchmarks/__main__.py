"""`python -m benchmarks`: make the tables, let every contender do every piece of work, compare, report."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.comparing import choices, compare, say
from benchmarks.contenders import WHERE
from benchmarks.data import fingerprint, make_table
from benchmarks.processes import ContenderError, processes
from benchmarks.tasks import NAMES, Size, task

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run what the command line asks for; 1 if survivors differ or a contender failed."""
    options = _parser().parse_args()
    size = Size(options.messages, options.segments, options.subjects, options.many_subjects)
    try:
        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=options.directory) as directory:
            results = _measure(Path(directory), size, options)
    except ContenderError as error:
        say(str(error))
        return 1
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "size": asdict(size),
        "runs": options.runs,
        **report.surroundings(),
        "results": results,
    }
    target = options.output or RESULTS / f"{document['date'][:10]}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.page:
        options.page.write_text(report.on_page(options.page.read_text("utf-8"), document), "utf-8")
    print(report.markdown(results))
    say(f"written to {target}")
    wrong = [result for result in results if result["failed"] or not result["equal"]]
    return 1 if wrong else 0


def _measure(directory: Path, size: Size, options: argparse.Namespace) -> list[dict[str, Any]]:
    sources = {"few": directory / "few", "many": directory / "many"}
    say(f"making two tables of {size.total:,} messages in {size.segments} segments")
    total_bytes = make_table(sources["few"], size, size.subjects)
    make_table(sources["many"], size, size.many_subjects)
    before = fingerprint(directory)
    with processes(options.contenders, directory) as running:
        results = [
            compare(running, sources[asked.table], asked, options.runs)
            for asked in (task(name, size, total_bytes) for name in options.only)
        ]
    if fingerprint(directory) != before:
        raise ContenderError("a contender changed a data file in place, which others share")
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--messages", type=int, default=250_000, help="in each segment")
    parser.add_argument("--segments", type=int, default=24)
    parser.add_argument("--subjects", type=int, default=2_000, help="all tasks but last-many")
    parser.add_argument("--many-subjects", type=int, default=2_000_000, help="task last-many")
    parser.add_argument("--runs", type=int, default=5, help="that are counted, of each contender")
    parser.add_argument("--only", type=choices(NAMES), default=NAMES, help=", ".join(NAMES))
    parser.add_argument(
        "--contenders", type=choices(tuple(WHERE)), default=tuple(WHERE), help=", ".join(WHERE)
    )
    parser.add_argument(
        "--directory", type=Path, help="where tables and copies lie (one file system)"
    )
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/<date>.json")
    parser.add_argument("--page", type=Path, help="a Markdown page whose figures are replaced")
    return parser


if __name__ == "__main__":
    sys.exit(main())
