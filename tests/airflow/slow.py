"""Jobs that take ten minutes, to be interrupted, and the processes of running jobs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from tests.airflow.world import ROOT

_SLOW = """
import time
import retention.core.outcomes as outcomes
outcomes.act_concurrently = outcomes.act_sequentially = lambda *_: time.sleep(600)
"""


def slow_engine(folder: Path) -> str:
    """The variables, as Python text, of an engine with slow plans and passes.

    Args:
        folder: a folder with a name that ends in `slow`; created here.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SLOW, encoding="utf-8")
    return json.dumps({"PYTHONPATH": f"{folder}:{ROOT}"})


def engines(report: str, job: str = "plan") -> dict[int, list[int]]:
    """The running jobs, each with the processes that must end with it.

    Args:
        report: a part of their reports' path.
        job: their name.
    """
    running = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if f"retention.jobs.{job}" in words and any(
                report in word for word in words if word.startswith("--report-file=")
            ):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                ends = [word for word in words if word.startswith("--end-with=")]
                if state != "Z":
                    running[int(folder.name)] = [int(word.partition("=")[2]) for word in ends]
    return running
