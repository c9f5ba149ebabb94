from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.reclaiming import data_files, emptied

ROOT = Path(__file__).parents[2]


def test_the_job_deletes_and_reports(tmp_path: Path) -> None:
    emptied(tmp_path, "delta")
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "retention.jobs.reclaim", "--report-file", str(report)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )

    refused = run("--as-of", "2026-11-20")
    assert (refused.returncode, "storage's clock" in refused.stderr) == (2, True)
    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("reclaim: 1 stream done, 0 failed; deleted 6 files (")
    (entry,) = json.loads(report.read_text(encoding="utf-8"))["streams"]
    assert (entry["stream"], entry["by_reason"]["removed"]["files"]) == ("ORDERS", 3)
    assert len(data_files(tmp_path)) == 2
