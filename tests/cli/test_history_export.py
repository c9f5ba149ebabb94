"""`history export`: author, time, rule, numbers and outcome of each removal, also after reclaim."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention.core.units import HOUR, format_instant, parse_instant
from retention.history.initiator import initiator
from retention.schemas.history_export import HISTORY_EXPORT
from tests.support.sandboxes import ORDERS, Commands, commands, lines
from tests.support.topics import World, line


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    """30 messages; a pass removed the six oldest, was undone and repeated, and its files are reclaimed."""
    settings = {"max_msgs_per_subject": 24, "format": request.param, "grace": "0s"}
    command = commands(tmp_path / "w", {**ORDERS, "max_age": "3650d", **settings})
    command.json("publish", "ORDERS", stdin="\n".join(lines(30)))
    command.json("undo", applied(command))
    applied(command)
    time.sleep(0.02)
    command.json("reclaim", "--yes")
    return command


def applied(command: Commands) -> str:
    [report] = command.json("apply", "ORDERS", "--yes")["streams"]
    return str(report["run"])


def exported(command: Commands, *options: object) -> list[dict[str, Any]]:
    return list(command.json("history", "export", *options)["runs"])


def test_every_format_says_who_removed_what_and_what_came_of_it(orders: Commands) -> None:
    first, undo, second, reclaim = exported(orders)
    assert [run["kind"] for run in (first, undo, second, reclaim)] == [
        "apply",
        "undo",
        "apply",
        "reclaim",
    ]
    assert (first["undone_by"], undo["undoes"], second["undone_by"]) == (
        undo["run"],
        first["run"],
        None,
    )
    assert (second["reclaimed_by"], second["evidence"]) == (reclaim["run"], "messages")
    assert second["reasons"] == ["max_msgs_per_subject 24, 24 or more on the subject are newer"]
    assert (
        second["removed_messages"],
        undo["restored_messages"],
        reclaim["deleted_files"] > 0,
    ) == (6, 6, True)
    assert (second["user"], second["process"]) == (initiator()["user"], initiator()["pid"])
    for run in (first, second):
        [loss] = run["removed"]
        assert (loss["segment"], loss["messages"], loss["ranges"]) == (1, 6, [[1, 6]])
        assert (loss["rules"], loss["rule_messages"]) == (["max_msgs_per_subject"], [6])
        assert loss["bytes"] == run["removed_bytes"]
    assert format_instant(parse_instant(second["as_of"])) == second["as_of"] < reclaim["began"]
    printed = orders.run("--format", "csv", "history", "export").stdout
    rows = list(csv.DictReader(printed.splitlines()))
    assert list(rows[0]) == HISTORY_EXPORT.names
    assert [(row["run"], row["ranges"]) for row in rows if row["ranges"]] == [
        (first["run"], "1-6"),
        (second["run"], "1-6"),
    ]
    assert rows[2]["began"] == second["began"]
    file = orders.folder / "audit.parquet"
    assert orders.run("history", "export", "--format", "parquet", "-o", file).exit_code == 0
    table = pq.read_table(file)
    assert table.schema.equals(HISTORY_EXPORT)
    assert table["run"].to_pylist() == [row["run"] for row in rows]


def modified_ns(folder: Path) -> int:
    """The modification time of a folder changed now."""
    (folder / "changed").touch()
    return (folder / "changed").stat().st_mtime_ns


def test_losses_of_a_topic_are_told_by_partition_after_its_files_are_archived(
    tmp_path: Path,
) -> None:
    kept = {"archive": str(tmp_path / "archive"), "grace": "0s"}
    world = World(tmp_path / "w", "delta", {"message_expiry": "1h", "roll_after": "1h"} | kept)
    world.clock.now_ns = modified_ns(tmp_path) - 2 * HOUR
    world.topic.publish([line(data, partition=number) for data, number in (("a", 0), ("b", 1))])
    world.topic.publish([line("c", partition=1)])
    world.clock.now_ns += 2 * HOUR
    world.warehouse.apply()
    time.sleep(0.02)
    world.clock.now_ns = modified_ns(tmp_path)
    world.warehouse.reclaim().apply()
    *losses, reclaim = world.warehouse.history_export().to_pylist()
    assert [(row["partition"], row["messages"], row["ranges"]) for row in losses] == [
        (0, 1, [{"first_seq": 0, "last_seq": 0}]),
        (1, 2, [{"first_seq": 0, "last_seq": 1}]),
    ]
    assert {(row["reclaimed_by"], *row["rules"]) for row in losses} == {
        (reclaim["run"], "message_expiry")
    }
    [manifest] = {row["archive"] for row in losses}
    assert Path(manifest).is_relative_to(tmp_path / "archive")


def test_a_message_is_explained_in_the_same_words_after_reclaim(orders: Commands) -> None:
    *_, run, reclaim = exported(orders)
    [sentence, *lines] = orders.run("explain", "ORDERS", "3").stdout.splitlines()
    assert sentence == (
        f"ORDERS 3 was removed by run {run['run']} of {run['began']}: max_msgs_per_subject 24, 24 or more on the "
        f"subject are newer; undo can no longer restore it: reclaim {reclaim['run']} deleted the last of its files at "
        f"{run['reclaimed']}."
    )
    assert lines[0] == "  its subject and its time are not recorded: its file is deleted"
    shown = orders.run("history", "show", run["run"], "--messages").stdout
    assert "1 to 6  6 messages in a deleted file  max_msgs_per_subject" in shown
    again = orders.json("history", "show", run["run"], "--messages")
    assert again["recovery"]["reclaimed_by"] == reclaim["run"]
    assert [(each["first_seq"], each["last_seq"]) for each in again["messages"]] == [(1, 6)]


def test_nothing_on_record_is_not_told_as_nothing_that_happened(orders: Commands) -> None:
    *_, run, _ = exported(orders)
    for file in orders.folder.glob("runs/ORDERS/evidence/*"):
        file.unlink()
    refused = orders.run("explain", "ORDERS", "3")
    assert (refused.exit_code, refused.stderr) == (
        2,
        f"ORDERS 3 is missing, and it is unknown whether a run removed it: run {run['run']} of {run['began']} "
        "removed 6 messages, but their sequences are not recorded: earlier versions of this program kept no such "
        "record, or reclaim deleted it; `retention history` lists the runs\n",
    )


def test_a_period_ends_before_its_end(orders: Commands) -> None:
    runs = exported(orders)
    began = [run["began"] for run in runs]
    within = exported(orders, "--from", began[0], "--to", began[2])
    assert within == runs[:2]
    assert exported(orders, "--to", began[0]) == []
    document = orders.json("history", "export", "ORDERS", "--from", began[3])
    assert (document["from"], document["to"], document["runs"]) == (began[3], None, runs[3:])


def test_what_else_is_there_is_not_overwritten(orders: Commands) -> None:
    config = orders.folder / "retention.yaml"
    before = config.read_bytes()
    for form in ("csv", "json", "parquet"):
        refused = orders.run("history", "export", "--format", form, "-o", config)
        assert (refused.exit_code, config.read_bytes()) == (2, before)
        assert "holds something other than an exported history" in refused.stderr
        file = orders.folder / form
        for _ in range(2):
            assert orders.run("history", "export", "--format", form, "-o", file).exit_code == 0
        other = {"csv": "json", "json": "parquet", "parquet": "csv"}[form]
        assert orders.run("history", "export", "--format", other, "-o", file).exit_code == 2


def test_damaged_evidence_is_named_and_no_file_is_written(orders: Commands) -> None:
    [evidence] = orders.folder.glob("runs/ORDERS/evidence/*")
    evidence.write_bytes(evidence.read_bytes()[:-9])
    file = orders.folder / "audit.json"
    refused = orders.run("history", "export", "--format", "json", "-o", file)
    assert (refused.exit_code, file.exists()) == (6, False)
    assert (
        f"{evidence}: this file of evidence, the record of removed messages, is damaged"
        in refused.stderr
    )
    assert "restore it from a copy, or move it away" in refused.stderr
    evidence.unlink()
    deleted = [run for run in exported(orders) if run["removed_messages"]]
    assert [(run["evidence"], run["removed"]) for run in deleted] == [("deleted", [])] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "export"], "say --format csv, json, parquet or html"),
        (["history", "export", "--format", "jsonl"], "say --format csv, json, parquet or html"),
        (["history", "--from", "now-1d"], "write `retention history export`"),
        (["history", "ORDERS", "--format", "csv"], "write `retention history export`"),
        (
            ["state", "--format", "parquet"],
            "--format parquet belongs to `retention history export`",
        ),
        (
            ["history", "export", "--format", "csv", "--from", "now", "--to", "now-1d"],
            "has no length",
        ),
        (["history", "export", "--format", "csv", "OTHER"], "there is no such stream"),
    ],
)
def test_a_wrong_request_is_one_sentence(tmp_path: Path, words: list[str], said: str) -> None:
    command = commands(tmp_path / "w", ORDERS)
    command.json("publish", "ORDERS", stdin=lines(1)[0])
    refused = command.run(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert said in refused.stderr


def test_a_stream_that_is_called_export_is_listed(tmp_path: Path) -> None:
    command = commands(tmp_path / "w", {"name": "export", "subjects": ["export.>"]})
    command.json("publish", "export", stdin=lines(1, "export.a")[0])
    assert command.json("history", "export") == []
    assert "stream,run," in command.run("history", "export", "--format", "csv").stdout
