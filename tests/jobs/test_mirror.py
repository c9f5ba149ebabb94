from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.sandboxes import ORDERS, lines, opened

ROOT = Path(__file__).parents[2]
COPY = {"name": "COPY", "mirror": {"name": "ORDERS"}}


def test_the_job_mirrors_and_reports(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS, COPY)
    warehouse.stream("ORDERS").publish(lines(3))
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "retention.jobs.mirror", "--report-file", str(report)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mirror: 1 stream done, 0 failed; stored 3 messages (")
    (entry,) = json.loads(report.read_text(encoding="utf-8"))["streams"]
    assert (entry["stream"], entry["messages"], entry["last_seq"]) == ("COPY", 3, 3)
    refused = subprocess.run(
        [*command, "--stream", "ORDERS"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "no mirror and no sources" in refused.stderr
