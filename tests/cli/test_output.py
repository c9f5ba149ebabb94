from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retention.cli import output
from retention.cli.settings import Settings
from tests.support.sandboxes import ORDERS, lines, opened

HEAD = ("NAME", "SIZE", "NOTE")
ROWS = [("a", "1,000", "x" * 60), ("bb", "2", "")]


def test_nobodys_table_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output.put_table(HEAD, ROWS, ("SIZE",))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == list(HEAD)
    assert first == "a     1,000  " + "x" * 60
    assert second == "bb        2"


def test_a_table_too_wide_for_its_terminal_is_set_upright(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_WIDE", 40)
    output.put_table(HEAD, ROWS, ("SIZE",))
    assert capsys.readouterr().out.splitlines() == [
        "a",
        "  SIZE  1,000",
        "  NOTE  " + "x" * 60,
        "bb",
        "  SIZE  2",
    ]


def test_json_is_a_document_and_jsonl_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    items = [{"name": "é"}, {"name": "b"}]
    output.put_json(Settings(None, None, "json", debug=False), {"all": items}, items)
    assert json.loads(capsys.readouterr().out) == {"all": items}
    output.put_json(Settings(None, None, "jsonl", debug=False), {"all": items}, items)
    assert capsys.readouterr().out == '{"name": "é"}\n{"name": "b"}\n'


def test_nothing_is_coloured_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    output.put_report(["head [not markup]", "  1 body"])
    assert capsys.readouterr().out == "head [not markup]\n  1 body\n"


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    opened(tmp_path, ORDERS).stream("ORDERS").publish(lines(5000))
    command = "from retention.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "messages", "ORDERS", "--format", "jsonl"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["seq"] == 1
        process.stdout.close()
        assert process.stderr.read() == ""
