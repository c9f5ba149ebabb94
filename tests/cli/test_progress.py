from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from retention.core import progress
from retention.datafile.parquet import write_messages
from tests.contract.streams import rows
from tests.support.sandboxes import Commands, commands

FILES = 300


def test_a_table_of_many_tiny_files_of_another_writer_is_read_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    told = commands(tmp_path, {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 10})
    line = '{"subject": "orders.0", "data": "x", "ts_ns": 1000000000000000000}'
    done = told.run("publish", "ORDERS", "-", stdin=line)
    assert done.exit_code == 0, done.output
    directory = next(tmp_path.glob("streams/ORDERS/messages/partition=0/segment=*"))
    for number in range(2, FILES + 2):
        write_messages(str(directory / f"theirs-{number}.parquet"), [rows([number])])
    done = told.run("plan", "ORDERS")
    assert done.exit_code == 0, done.output
    assert f"reading files that no log describes: {FILES:,} of {FILES:,}" in done.stderr
    assert f"{FILES + 1 - 10} messages" in done.stdout


def published(folder: Path, count: int, **settings: Any) -> Commands:
    """Streams S00, S01, …; the first one has an expired message."""
    command = commands(
        folder,
        *(
            {"name": f"S{n:02}", "subjects": [f"s{n}.>"], "max_age": "1d", **settings}
            for n in range(count)
        ),
        engine="local",
    )
    command.json(
        "publish", "S00", stdin='{"subject": "s0.a", "data": "x", "ts_ns": 1000000000000000000}'
    )
    return command


def test_few_streams_have_a_line_each(tmp_path: Path) -> None:
    done = published(tmp_path, 2).run("plan")
    lines = [re.sub(r"[0-9.]+ s", "T s", line) for line in done.stderr.splitlines()]
    assert lines == [
        "S00: planned, would remove 1 message (T s)",
        "S01: planned, would remove 0 messages (T s)",
    ]


def test_many_streams_have_a_line_every_few_seconds_and_one_for_each_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = published(tmp_path, 30)
    names = [*(f"S{n:02}" for n in range(30)), "NONE"]
    done = command.run("plan", *names)
    assert done.exit_code == 5
    first, second, third = done.stderr.splitlines()
    assert first.startswith("NONE: failed (")
    assert second == "planning: 31 of 31 streams"
    assert third.startswith("NONE: there is no such stream")
    monkeypatch.setattr("retention.cli.progress.EVERY_S", 0.0)
    shown = command.run("plan").stderr.splitlines()
    assert len(shown) == 30
    assert re.fullmatch(r"planning: 2 of 30 streams, about \d+s left", shown[1])


def test_events_with_jsonl_are_on_standard_error(tmp_path: Path) -> None:
    command = published(tmp_path, 2)
    done = command.run("--format", "jsonl", "apply", "S00", "NONE", "--yes")
    assert done.exit_code == 5
    begun, applied, _, failed, sentence = done.stderr.splitlines()
    assert json.loads(begun)["event"] == "stream_begun"
    event = json.loads(applied)
    assert (event["event"], event["command"], event["stream"]) == ("stream_done", "apply", "S00")
    assert event["run"] == json.loads(done.stdout.splitlines()[0])["run"]
    assert event["removed_messages"] == 1
    assert json.loads(failed)["event"] == "stream_failed"
    assert sentence.startswith("NONE: there is no such stream")


def test_long_work_is_an_event_with_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    command = published(tmp_path, 2)
    wide = ("--max-time", "1h", "--yes")
    done = command.run("--format", "jsonl", "apply", *wide)
    kinds = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    ends = ["stream_begun", "stream_done"]
    assert kinds == ["progress", "progress", *ends, *ends]
    first = json.loads(done.stderr.splitlines()[0])
    assert (first["doing"], first["done"], first["total"]) == ("measuring lags", 1, 2)


def test_the_pace_tells_how_much_time_is_left() -> None:
    now = 0.0
    pace = progress.Pace(lambda: now)
    assert pace.left("reading", 0, 100) == ""
    now = 10.0
    assert pace.left("reading", 10, 100) == ", about 1m30s left"
    assert pace.left("writing", 50, 100) == ""
    now = 20.0
    assert pace.left("reading", 90, 100) == ", about 2s left"
    assert pace.left("reading", 100, 100) == ""
    assert pace.left("reading", 5, 100) == "", "the same work begins anew"
    now = 21.0
    assert pace.left("reading", 5, 100) == "", "nothing was done since"
    assert pace.left("reading", 95, 100) == ", about 1s left"


def everything_on(terminal: int) -> bytes:
    """Everything that was written to a terminal; a single read ends after 4 KiB, in the middle of a letter."""
    shown = b""
    with suppress(OSError):
        while piece := os.read(terminal, 1 << 16):
            shown += piece
    return shown


def test_a_terminal_has_bars_with_the_time_left(tmp_path: Path) -> None:
    published(tmp_path, 3)
    ours, theirs = pty.openpty()
    code = (
        "import retention.core.progress as p; p.EVERY_S = 0.0; "
        "from retention.cli.main import main; main()"
    )
    words = ["apply", "--yes", "--max-time", "1h"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    os.close(theirs)
    shown = everything_on(ours).decode()
    os.close(ours)
    assert done.returncode == 0, shown
    assert "left:" in shown
    assert "applying" in shown
    assert "measuring lags" in shown
