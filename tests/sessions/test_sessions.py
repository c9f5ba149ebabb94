"""Every command and job that may run on Spark, on every way to get a session, each in a process of its own.

`make test` tries a few of the cells, which differ most; `make long NAME=sessions` tries all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.connect_server import ROOT, connect_server
from tests.support.sandboxes import configured, lines
from tests.support.session_ways import ACTS

pytestmark = pytest.mark.spark
EVERYTHING = os.environ.get("RETENTION_SESSIONS") == "all"
FIRST_NS = 1_767_225_600 * 10**9
"""2026-01-01T00:00:00Z."""
BIN = Path(sys.executable).parent
ON_SPARK = ("--engine", "spark")
ORDERS = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "format": "delta",
    "max_msgs_per_subject": 7,
    "segment_span": "30d",
    "archive": "./archive",
    "grace": "1s",
}
COLUMNS = (
    *("--column", "subject='orders.c'", "--column", "payload=body"),
    *("--column", "time=cast(time AS timestamp)"),
)
JOBS = {
    "plan": (),
    "retain": ("--compact",),
    "compact": (),
    "reclaim": (),
    "fold": ("--stream", "ORDERS", "--log", "acks.jsonl"),
    "ingest": ("--stream", "ORDERS", "--source", "source", "--source-format", "json", *COLUMNS),
    "doctor": (),
}
COMMANDS = {
    "plan": (),
    "apply": ("--yes",),
    "purge": ("ORDERS", "--subject", "orders.a", "--keep", "1", "--yes"),
    "delete": ("ORDERS", "41", "--yes"),
    "compact": ("--yes",),
    "reclaim": ("--yes",),
    "undo": ("{run}",),
    "restore": ("ORDERS", "--as", "AGAIN"),
    "consumer fold": ("ORDERS", "acks.jsonl"),
    "explain": ("ORDERS", "1"),
    "state": (),
    "doctor": ("--spark",),
}


def _cells() -> Iterator[tuple[str, str, str]]:
    """Kind of work, its name, and the way to get a session."""
    for job in JOBS:
        yield from (("job", job, way) for way in ("own", "submitted", "connect", "active"))
    for command in COMMANDS:
        yield from (("command", command, way) for way in ("own", "connect", "active"))
    yield from (("python", act, "threads") for act in ACTS)


FEW = {("command", "plan", "active")}
CELLS = [cell for cell in _cells() if EVERYTHING or cell in FEW]


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream after a pass that removed some messages; another pass would remove more."""
    folder = tmp_path_factory.mktemp("laid")
    config = configured(folder, ORDERS)
    command = (BIN / "retention", "--engine", "local", "--config", config)
    for first in (0, 40):
        pairs = zip(
            lines(20, "orders.a", FIRST_NS),
            lines(20, "orders.b", FIRST_NS),
            strict=True,
        )
        text = "\n".join(line for pair in pairs for line in pair)
        subprocess.run([*command, "publish", "ORDERS"], input=text, text=True, check=True)
        if not first:
            subprocess.run([*command, "apply", "--yes"], check=True)
    subprocess.run([*command, "consumer", "add", "ORDERS", "all", "--ack", "explicit"], check=True)
    ack = {"subject": f"$JS.ACK.ORDERS.all.1.41.1.{FIRST_NS}.0", "data": "+ACK"}
    (folder / "acks.jsonl").write_text(json.dumps(ack) + "\n", encoding="utf-8")
    (folder / "source").mkdir()
    row = {"body": "x", "time": "2026-01-01T00:00:00Z"}
    (folder / "source" / "1.json").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    with connect_server(tmp_path_factory.mktemp("connect") / "server.log") as address:
        yield address


def _words(kind: str, name: str, way: str, folder: Path) -> list[str]:
    config = ("--config", str(folder / "retention.yaml"))
    if kind == "python":
        return [sys.executable, "-m", "tests.support.session_ways", way, name, config[1]]
    if kind == "job":
        module, words = f"retention.jobs.{name}", [*JOBS[name], *config, *ON_SPARK]
        own = [sys.executable, "-m", module, *words]
        submitted = [str(BIN / "spark-submit"), str(ROOT / "jobs" / f"{name}.py"), *words]
    else:
        [run] = [file.name[: -len(".done.json")] for file in folder.glob("runs/ORDERS/*.done.json")]
        given = [word.format(run=run) for word in COMMANDS[name]]
        module, words = "retention.cli.main", [*config, *ON_SPARK, *name.split(), *given]
        own, submitted = [str(BIN / "retention"), *words], []
    active = [sys.executable, "-m", "tests.support.session_ways", "active", module, *words]
    return {"own": own, "connect": own, "submitted": submitted, "active": active}[way]


@pytest.mark.parametrize(("kind", "name", "way"), CELLS)
def test_work_gets_its_session_on_every_way(
    kind: str, name: str, way: str, laid: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "w"
    shutil.copytree(laid, folder)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if way == "connect":
        environment["SPARK_REMOTE"] = request.getfixturevalue("remote")
    done = subprocess.run(
        _words(kind, name, way, folder),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unexpected" not in done.stderr
    assert "Traceback" not in done.stderr
