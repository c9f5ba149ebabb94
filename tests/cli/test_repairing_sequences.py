"""Numbers at the limits of 64 bits: refused by name on ingest, and removed by `repair sequences`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from retention.api.warehouse import open_warehouse
from retention.consumers.state import DeliveryPosition
from retention.context.context import OpenedStream
from retention.datafile.parquet import stats_table
from retention.history.runs import history_of
from retention.schemas.bounds import MAX_SEQ
from retention.storage import crash_points
from retention.storage.crash_points import Step
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.layout import Layout
from retention.stores.parquet.log import CommitEntry, ParquetLog
from tests.contract.streams import foreign_rows, rows
from tests.support.run_records import run_record
from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines

HIGHEST = 2**63 - 1
REPAIR = ("repair", "sequences", "ORDERS")
CLICKS = {"name": "clicks", "partitions": 1, "message_expiry": "1h"}


@pytest.fixture(params=["delta", "parquet"])
def orders(tmp_path: Path, request: pytest.FixtureRequest) -> Commands:
    """ORDERS with messages 1 to 3."""
    command = commands(tmp_path, ORDERS, format=request.param)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(3)))
    return command


def table(command: Commands) -> Path:
    return command.folder / "streams" / "ORDERS" / "messages"


def stream_of(command: Commands) -> OpenedStream:
    return open_warehouse(command.folder / "retention.yaml").stream("ORDERS").opened


def is_delta(command: Commands) -> bool:
    return (table(command) / "_delta_log").exists()


def foreign(command: Commands, seqs: Sequence[int], segment: int = 1, **columns: Any) -> None:
    """Another writer appends rows."""
    columns["seq"] = list(seqs)
    if is_delta(command):
        write_deltalake(
            table(command), foreign_rows(range(len(seqs)), segment, **columns), mode="append"
        )
        return
    folder = table(command) / "partition=0" / f"segment={segment}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        rows(range(len(seqs)), **columns), folder / f"theirs-{len(list(folder.iterdir()))}.parquet"
    )


def taken_in(command: Commands, seqs: Sequence[int], segment: int = 1, **columns: Any) -> None:
    """Rows of the table accepted by an earlier version of this program, which did not check their numbers."""
    if is_delta(command):
        foreign(command, seqs, segment, **columns)
        return
    opened = stream_of(command)
    log = ParquetLog(Layout(opened.root, "ORDERS"))
    path = f"partition=0/segment={segment}/theirs.parquet"
    (table(command) / path).parent.mkdir(parents=True, exist_ok=True)
    content = rows(range(len(seqs)), seq=list(seqs), **columns)
    pq.write_table(content, table(command) / path)
    found = (table(command) / path).stat()
    row: dict[str, Any] = dict.fromkeys(stats_table([]).column_names, 0)
    row |= {"path": path, "segment": segment, "file_bytes": found.st_size, "in_time_order": False}
    row |= {"modified_ms": found.st_mtime_ns // 10**6, "messages": len(seqs)}
    row |= {"min_seq": min(seqs), "max_seq": max(seqs), "bytes": content["size"][0].as_py() * 2}
    assert log.append(CommitEntry(log.newest() + 1, 0, add=[row]))


def counted(command: Commands, next_seq: int) -> None:
    """The log's counters as left by an earlier version of this program that accepted such rows."""
    if is_delta(command):
        nothing = foreign_rows([], 1)
        properties = CommitProperties(app_transactions=[Transaction("next_seq/0", next_seq)])
        write_deltalake(table(command), nothing, mode="append", commit_properties=properties)
        return
    log = ParquetLog(Layout(stream_of(command).root, "ORDERS"))
    assert log.append(CommitEntry(log.newest() + 1, 0, next_seq={0: next_seq}))


def publish(command: Commands, count: int = 1) -> list[int]:
    given = "\n".join(lines(count))
    done = command.run("--format", "jsonl", "publish", "ORDERS", "-", stdin=given)
    assert done.exit_code == 0, done.output
    return [json.loads(line)["seq"] for line in done.stdout.splitlines()]


def held(command: Commands) -> list[int]:
    done = command.run("--format", "jsonl", "messages", "ORDERS")
    assert done.exit_code == 0, done.output
    return [json.loads(line)["seq"] for line in done.stdout.splitlines()]


WRONG: dict[str, dict[str, Any]] = {
    "the highest sequence": {"seqs": [HIGHEST], "segment": HIGHEST},
    "the one before": {"seqs": [4, HIGHEST - 1]},
    "one beyond the bound": {"seqs": [MAX_SEQ + 1], "segment": 4},
    "one below 1": {"seqs": [0], "segment": 0},
    "a large size": {"seqs": [4, 5], "size": [2**62, 2**62]},
    "a negative size": {"seqs": [4], "size": [-1]},
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_numbers_are_refused_by_file(orders: Commands, name: str) -> None:
    foreign(orders, **WRONG[name])
    commanded = [("apply", "--yes"), ("publish", "ORDERS", "-")]
    for words in (
        commanded
        if name != "the one before"
        else [*commanded, ("purge", "ORDERS", "--yes"), ("state",)]
    ):
        done = orders.run(*words, stdin=lines(1)[0])
        assert done.exit_code == 4, done.output
        assert "segment=" in done.stderr
        assert "nothing was changed" in done.stderr
        assert "between 0 and" in done.stderr or "between 1 and" in done.stderr


def test_rows_that_the_table_has_are_taken_out_and_the_others_stay(orders: Commands) -> None:
    taken_in(orders, [4, 6, HIGHEST - 1])
    refused = orders.run("apply", "--yes")
    assert refused.exit_code == 4
    assert "`retention repair sequences ORDERS --yes`" in refused.stderr
    shown = orders.run(*REPAIR)
    assert "would remove 1 row with impossible numbers, keeping 2 beside them" in shown.stdout
    assert "the next sequence is 7" in shown.stdout
    assert orders.run("publish", "ORDERS", "-", stdin=lines(1)[0]).exit_code == 4, "it was dry"
    done = orders.json(*REPAIR, "--yes")
    assert (done["removed_messages"], done["next_seq"]) == (1, {"0": 7})
    assert publish(orders, 2) == [7, 8]
    assert held(orders) == [1, 2, 3, 4, 6, 7, 8]
    assert orders.run("apply", "--yes").exit_code == 0
    assert "nothing to repair" in orders.run(*REPAIR, "--yes").stdout
    undone = orders.run("undo", done["run"])
    assert undone.exit_code == 2
    assert "cannot be undone" in undone.stderr


def test_a_counter_that_ran_away_counts_no_longer(orders: Commands) -> None:
    gone = orders.json("delete", "ORDERS", 3, "--yes")["streams"][0]["run"]
    counted(orders, HIGHEST)
    refused = orders.run("publish", "ORDERS", "-", stdin=lines(1)[0])
    assert refused.exit_code == 4
    assert f"{HIGHEST} as the next sequence of partition 0" in refused.stderr
    assert (
        orders.run(
            "--format",
            "jsonl",
            "publish",
            "ORDERS",
            "-",
            "--writer",
            "w",
            "--batch",
            1,
            stdin=lines(1)[0],
        ).exit_code
        == 4
    )
    orders.json(*REPAIR, "--yes")
    assert publish(orders) == [4], "3 was given out, though its message is gone"
    assert orders.json("undo", gone)["restored_messages"] == 1
    assert held(orders) == [1, 2, 3, 4]
    assert publish(orders) == [5]


def test_writers_batches_and_the_run_history_go_on_behind_a_repair(orders: Commands) -> None:
    numbered = ("publish", "ORDERS", "-", "--writer", "w", "--batch")
    assert orders.json(*numbered, 7, stdin=lines(1)[0])
    history = history_of(str(orders.folder), "ORDERS")
    for later, seq in enumerate((9, HIGHEST)):
        history.finish(
            run_record(history.name_run(NOW + later), status="done", next_seq={"0": seq})
        )
    refused = orders.run("publish", "ORDERS", "-", stdin=lines(1)[0])
    assert refused.exit_code == 4
    assert "its run history has 9223372036854775807 as the next sequence" in refused.stderr
    done = orders.json(*REPAIR, "--yes")
    assert done["counters"] == {
        "next sequence in the run history of partition 0": HIGHEST,
    }
    assert orders.json(*numbered, 7, stdin=lines(1)[0])[0]["duplicate"]
    assert publish(orders) == [9], "the history knows of 8"
    orders.json("apply", "--yes")
    assert publish(orders) == [10]


def test_a_consumer_beyond_the_end_is_taken_back(tmp_path: Path) -> None:
    stream = {
        **ORDERS,
        "retention": "interest",
        "consumers": [{"durable_name": "c", "ack_policy": "explicit"}],
    }
    command = commands(tmp_path, stream, format="delta")
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(3)))
    command.json("apply", "--yes")

    def settled(record: ConsumerRecord | None) -> ConsumerRecord:
        assert record is not None
        far = DeliveryPosition(4, HIGHEST - 1)
        return replace(record, state=replace(record.state, delivered=far, ack_floor=far))

    ConsumerTable(stream_of(command).root).update("c", settled)
    counted(command, HIGHEST)
    assert command.json(*REPAIR, "--yes")["consumers"] == ["c"]
    assert publish(command) == [4]
    command.json("apply", "--yes")
    assert held(command) == [4], "1 to 3 were settled, 4 is not"


def test_a_repair_that_is_killed_is_repeated(
    orders: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at the first occurrence of each step."""

    class KilledError(BaseException):
        pass

    def repaired(killed_at: Step | None) -> list[Step]:
        passed: list[Step] = []

        def watch(step: Step) -> None:
            passed.append(step)
            if step == killed_at:
                raise KilledError

        with monkeypatch.context() as watched, suppress(KilledError):
            watched.setattr(crash_points, "_watch", watch)
            open_warehouse(configuration).stream("ORDERS").repair_impossible_sequences().apply()
        return passed

    configuration = orders.folder / "retention.yaml"
    taken_in(orders, [4, 6, HIGHEST - 1])
    before = orders.folder.with_name(f"{orders.folder.name}-before")
    shutil.copytree(orders.folder, before)
    for step in dict.fromkeys(repaired(None)):
        shutil.rmtree(orders.folder)
        shutil.copytree(before, orders.folder)
        assert step in repaired(step)
        stream = open_warehouse(configuration).stream("ORDERS")
        stream.repair_impossible_sequences().apply()
        kept = pa.concat_tables(stream.messages())["seq"].to_pylist()
        assert kept == [1, 2, 3, 4, 6], step
        assert stream.publish([lines(1)[0]]).appended.first_seq == 7, step
        assert not history_of(str(orders.folder), "ORDERS").unfinished(), step


def test_a_table_put_back_to_before_its_repair_gives_nothing_out_twice(orders: Commands) -> None:
    counted(orders, HIGHEST)
    streams = orders.folder / "streams"
    shutil.copytree(streams, orders.folder / "backup", symlinks=True)
    orders.json(*REPAIR, "--yes")
    assert publish(orders) == [4]
    orders.json("delete", "ORDERS", 4, "--yes")
    shutil.rmtree(streams)
    (orders.folder / "backup").rename(streams)
    orders.json(*REPAIR, "--yes")
    assert publish(orders) == [5]


def test_a_topics_stored_offsets_go_on_behind_a_repair(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text(json.dumps({"warehouse": ".", "topics": [CLICKS]}))
    command = Commands(tmp_path)
    clicks = "\n".join(json.dumps({"data": f"click {number}"}) for number in range(3))
    command.json("publish", "clicks", "-", stdin=clicks)
    command.run("offset", "store", "clicks", 0, "reader", 1)
    place = tmp_path / "streams" / "clicks" / "messages"
    write_deltalake(place, foreign_rows([0], 0, seq=[HIGHEST - 1]), mode="append")
    counters = CommitProperties(app_transactions=[Transaction("next_seq/0", HIGHEST)])
    write_deltalake(place, foreign_rows([], 0), mode="append", commit_properties=counters)
    refused = command.run("publish", "clicks", "-", stdin=clicks)
    assert refused.exit_code == 4
    assert "sequences lie between 0 and 2^62" in refused.stderr
    repair = ("repair", "sequences", "clicks", "--yes")
    assert command.json(*repair)["next_seq"] == {"0": 3}
    assert [ack["seq"] for ack in command.json("publish", "clicks", "-", stdin=clicks)] == [3, 4, 5]
    (stored,) = command.json("offset", "ls", "clicks")
    assert stored["offset"] == 1
    assert command.run("apply", "--yes").exit_code == 0


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_plans_of_the_epoch_before_are_made_anew(tmp_path: Path, format_: str) -> None:
    orders = commands(tmp_path, {**ORDERS, "max_msgs": 2}, format=format_)
    publish(orders, 3)
    plan = orders.folder / "plan.json"
    orders.run("plan", "ORDERS", "-o", plan)
    counted(orders, HIGHEST)
    orders.json(*REPAIR, "--yes")
    assert orders.run("apply", plan, "--yes").exit_code == 75
    done = orders.json("apply", "ORDERS", "--yes")["streams"][0]
    assert done["removed_messages"] == 1
    assert publish(orders) == [4], "the epoch has its own history"
    assert orders.json("undo", orders.json("history")[0]["run"])["restored_messages"] == 1
    assert held(orders) == [1, 2, 3, 4]
    assert orders.run("apply", "--yes").exit_code == 0
    assert orders.run("apply", "--yes").exit_code == 0
    latest = orders.json("history")[0]
    assert (latest["epoch"], latest["next_seq"]) == (done["version_before"], {"0": 5})
