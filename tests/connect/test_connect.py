"""Spark Connect sessions: all features of a classic session, with a real server in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.connect_server import ROOT, connect_server

pytestmark = pytest.mark.spark
ALL = (
    *("a_pass", "an_append", "a_sink", "a_fold", "a_compaction", "a_read", "a_source"),
    *("a_cancelled_run", "a_cancelled_append", "some_progress", "an_ingest", "the_session_at_hand"),
    "a_stopped_session",
)
PLAYED = ALL if os.environ.get("RETENTION_CONNECT") == "all" else ALL[:1]
"""A small share, unless `make long NAME=connect` asks for all."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The result of each scenario. They run in one separate process, because this one has a classic session."""
    folder = tmp_path_factory.mktemp("connect")
    with connect_server(folder / "server.log") as remote:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.connect_client", str(folder), *PLAYED],
            cwd=ROOT,
            env=os.environ | {"SPARK_REMOTE": remote, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answers: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", PLAYED)
def test_a_connect_session_does_what_a_classic_one_does(
    ended: dict[str, str], scenario: str
) -> None:
    assert ended[scenario] == "", ended[scenario]
