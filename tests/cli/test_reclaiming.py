"""`retention reclaim`: a dry run by default, with sizes per reason, for many streams at once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.reclaiming import data_files, emptied
from tests.support.sandboxes import Commands


def test_it_is_dry_until_it_is_told_otherwise(tmp_path: Path) -> None:
    emptied(tmp_path, "delta")
    dry = Commands(tmp_path).run("reclaim")
    assert dry.exit_code == 0
    assert "ORDERS: would delete 6 files (" in dry.stdout
    assert "would delete: removed by runs whose grace period is over: 3 files, " in dry.stdout
    assert "nothing was deleted; repeat it with --yes" in dry.stderr
    assert len(data_files(tmp_path)) == 5
    done = Commands(tmp_path).run("reclaim", "ORDERS", "--yes", "--format", "json")
    [entry] = json.loads(done.stdout)["streams"]
    assert entry["by_reason"]["removed"]["files"] == 3
    assert (entry["stream"], entry["files"], entry["done"]) == ("ORDERS", 6, True)
    assert len(data_files(tmp_path)) == 2
    shown = Commands(tmp_path).run("history")
    assert "reclaim" in shown.stdout
    again = Commands(tmp_path).run("reclaim", "--yes")
    assert "ORDERS: nothing to delete" in again.stdout


def test_within_the_grace_it_says_what_stays(tmp_path: Path) -> None:
    emptied(tmp_path, "parquet", grace="7d")
    dry = Commands(tmp_path).run("reclaim")
    assert "nothing to delete, grace 7d" in dry.stdout
    assert "kept: dead for less than the grace period: 3 files" in dry.stdout


def test_a_stream_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    emptied(tmp_path, "delta")
    assert Commands(tmp_path).run("reclaim", "NONE").exit_code == 2
