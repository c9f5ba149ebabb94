from __future__ import annotations

import json
from pathlib import Path

from tests.support.jobs import Ended, run_job
from tests.support.sandboxes import ORDERS, lines, opened

EAGER = ORDERS | {"compact": {"min_files": 2}}


def test_the_job_compacts_and_reports(tmp_path: Path) -> None:
    stream = opened(tmp_path, EAGER).stream("ORDERS")
    for _ in range(3):
        stream.publish(lines(2))
    done = run(
        tmp_path,
        "--max-bytes",
        "1GiB",
        "--max-time",
        "1h",
        "--report-file",
        str(tmp_path / "report.json"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("compact: 1 stream done, 0 failed; merged 3 files into 1; ")
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    (entry,) = report["streams"]
    assert (entry["merges"], entry["files_before"], entry["pending"]) == (1, 3, 0)


def test_bounds_that_say_nothing_and_an_instant_are_refused(tmp_path: Path) -> None:
    opened(tmp_path, EAGER)
    unread, instant = run(tmp_path, "--max-bytes", "much"), run(tmp_path, "--as-of", "0")
    assert (unread.returncode, instant.returncode) == (2, 2)
    assert "compact: " in unread.stderr
    assert "leave out --as-of" in instant.stderr


def run(folder: Path, *arguments: str) -> Ended:
    return run_job("compact", folder, "--engine", "local", *arguments)
