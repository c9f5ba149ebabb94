"""The same night by Airflow, by cron and in a notebook: equal messages and equal histories."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.airflow.test_runs import states
from tests.airflow.world import ENGINE, ROOT, World, load

STREAMS = ("ORDERS", "QUIET")
CRON = (ROOT / "docs" / "cron.md").read_text(encoding="utf-8")
NOTEBOOK = """\
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(source) for source in {cells!r}]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, kernel_name="python3").execute()
"""
CELLS = [
    "import retention; wh = retention.open_warehouse('retention.yaml')",
    "orders = wh.stream('ORDERS'); orders.plan()",
    "orders.plan().apply(); wh.stream('QUIET').plan().apply(); orders.compact().apply()",
    "orders.reclaim().apply(); wh.stream('QUIET').reclaim().apply()",
]


def by_cron(lake: Path) -> None:
    """Run the lines of the guide's first crontab like cron."""
    lines = re.findall(r"^17 [25] \* \* [*0]  (.*jobs\.(?:retain|reclaim).*)$", CRON, re.MULTILINE)
    assert len(lines) == 2
    bare = {"PATH": "/usr/bin:/bin", "HOME": "/"}
    for line in lines:
        here = line.replace("/srv/lake-retention/.venv", str(ENGINE)).replace(
            "/srv/lake/", f"{lake}/"
        )
        done = subprocess.run(
            ["sh", "-c", here], cwd=ROOT, env=bare, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def in_a_notebook(lake: Path) -> None:
    """Execute cells in a kernel of the engine's environment."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    program = [str(ENGINE / "bin" / "python"), "-c", NOTEBOOK.format(cells=CELLS)]
    done = subprocess.run(
        program, cwd=lake, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def outcome(world: World) -> list[Any]:
    """The messages and the runs of each stream."""
    told: list[Any] = []
    for stream in STREAMS:
        told.append(world.command("--format", "jsonl", "messages", stream))
        runs = [
            (run["kind"], run["removed_messages"], run.get("by_rule")) for run in world.runs(stream)
        ]
        told.append(sorted(runs, key=json.dumps))
    return told


def test_airflow_cron_and_a_notebook_leave_the_same(
    home: Path, world: World, tmp_path: Path
) -> None:
    world.fill(*STREAMS)
    others = [World(tmp_path / name) for name in ("cron", "notebook")]
    for other in others:
        shutil.copytree(world.folder, other.folder)
    run = load(world.write_dag_file(home / "dags")).test(run_conf={"streams": list(STREAMS)})
    assert states(run)["ORDERS"] == ("success", "skipped", "success", "success", "success")
    by_cron(others[0].folder)
    in_a_notebook(others[1].folder)
    assert outcome(others[0]) == outcome(world)
    assert outcome(others[1]) == outcome(world)
