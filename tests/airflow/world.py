"""A warehouse of four streams, an Airflow home next to it, and the DAG file of the guide."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / ".venv"
GUIDE = (ROOT / "docs" / "airflow.md").read_text(encoding="utf-8")
BLOCKS = [
    textwrap.dedent(block)
    for block in re.findall(r"^ *```python\n(.*?)^ *```", GUIDE, re.DOTALL | re.MULTILINE)
]
"""The DAG files of the guide."""
LONG_AGO = 1_600_000_000 * 10**9
CONFIGURATION = """\
warehouse: .
defaults: {grace: 0s}
streams:
  - {name: ORDERS, subjects: [orders.>], max_age: 7d, compact: {min_files: 2}}
  - {name: QUIET, subjects: [quiet.>], max_age: 7d}
  - {name: BROKEN, subjects: [broken.>], max_age: 7d}
  - {name: WAITS, subjects: [waits.>], max_age: 7d, approve: true}
"""
MESSAGES = {
    "ORDERS": [(3, 0), (0, 2), (0, 2)],
    "QUIET": [(0, 2)],
    "BROKEN": [(3, 0)],
    "WAITS": [(3, 0)],
}
"""Old and new messages of each publish."""
HOLDING = """
import sys
from retention.stores.lease import lease
import time
with lease(sys.argv[1], "maintenance", time.time_ns):
    print("held", flush=True)
    sys.stdin.read()
"""
"""A program that holds the lease of a stream like a maintenance run, until its input ends."""


@dataclass(frozen=True)
class World:
    """A warehouse of four streams: one with due messages, one without, one damaged, one that needs an approval."""

    folder: Path

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.folder / "retention.yaml"

    @property
    def reports(self) -> Path:
        """The folder of the tasks' reports."""
        return self.folder / "reports"

    def fill(self, *streams: str) -> World:
        """Publish the messages before the first run, for these streams or for all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(CONFIGURATION, encoding="utf-8")
        for stream, batches in MESSAGES.items():
            for old, new in batches if stream in streams or not streams else ():
                self.publish(stream, old=old, new=new)
        log = self.folder / "streams" / "BROKEN" / "messages" / "_delta_log"
        if log.exists():
            (log / f"{0:020}.json").write_text("garbage", encoding="utf-8")
        return self

    def publish(self, stream: str, *, old: int = 0, new: int = 0) -> None:
        """Publish messages of the year 2020, and current ones."""
        message = {"subject": f"{stream.lower()}.a", "data": "x"}
        lines = [json.dumps(message | {"ts_ns": LONG_AGO})] * old + [json.dumps(message)] * new
        self.command("publish", stream, stdin="\n".join(lines))

    def command(self, *words: str, stdin: str = "") -> str:
        """The output of a successful command."""
        done = subprocess.run(
            [ENGINE / "bin" / "retention", "--config", self.config, *words],
            input=stdin,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def undo(self, run: str) -> str:
        """The command that undoes a run."""
        return f"{ENGINE / 'bin' / 'retention'} --config {self.config} undo {run}"

    def messages(self, stream: str) -> int:
        """The number of messages of a stream."""
        [state] = json.loads(self.command("--format", "json", "state", stream))
        return int(state["messages"])

    def runs(self, stream: str) -> list[dict[str, Any]]:
        """The run history of a stream, newest first."""
        records: list[dict[str, Any]] = json.loads(
            self.command("--format", "json", "history", stream)
        )
        return records

    def write_dag_file(
        self,
        dags: Path,
        *,
        seconds: int = 7200,
        batch: object = None,
        verify: str | None = None,
        release: Path = ROOT,
        **engine: str,
    ) -> Path:
        """Write the DAG file of the guide, with this world's paths, and the package next to it.

        Args:
            dags: the folder of DAG files.
            seconds: the time limit of each task.
            batch: the batches of `retention_dag`; None: no batches.
            verify: the share of files that `retention_dag` verifies; None: no such task.
            release: the clone of the package and the engine.
            engine: further arguments of `Engine`, as Python text.
        """
        text = BLOCKS[0]
        places = {
            "/srv/lake/retention.yaml": str(self.config),
            "/opt/retention": str(ENGINE),
            "/srv/lake/reports": str(self.reports),
        }
        for place, own in places.items():
            assert place in text
            text = text.replace(place, own)
        variables = json.dumps({"PYTHONPATH": str(release)})
        more = {"variables": variables, "engine": '"local"'} | engine
        extra = "".join(f"{name}={value}, " for name, value in more.items())
        text = re.sub(r"\bEngine\(", f"Engine({extra}", text)
        # Within a tenth of a day after its time Airflow starts a run of a schedule as soon as it is enabled.
        schedule = 'schedule="17 2 * * *"'
        assert schedule in text
        text = text.replace(schedule, "schedule=None")
        # Tests do not wait for minutes.
        tasks = f'{{"retry_delay": timedelta(seconds=1), "execution_timeout": timedelta(seconds={seconds})}}'
        batches = "" if batch is None else f"batch={batch!r}, "
        batches += "" if verify is None else f"verify={verify!r}, "
        text = text.replace(
            "schedule=",
            f'{batches}tasks={tasks}, approval={{"retry_delay": timedelta(seconds=1)}}, schedule=',
        )
        text = f"from datetime import timedelta\n{text}"
        leave = shutil.ignore_patterns("__pycache__")
        shutil.rmtree(dags / "airflow_dags", ignore_errors=True)
        shutil.copytree(release / "airflow_dags", dags / "airflow_dags", ignore=leave)
        file = dags / "retention_dag.py"
        file.write_text(text, encoding="utf-8")
        return file


def load(file: Path) -> Any:
    """The DAG of a DAG file."""
    spec = importlib.util.spec_from_file_location("dag_of_the_guide", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dag


def until(is_so: Callable[[], Any], seconds: float = 300) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.5)
