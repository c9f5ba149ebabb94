from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from retention.api.warehouse import Warehouse
from retention.apply.requested import remove_now
from retention.core.table_requirements import RowsCompared
from retention.datafile.parquet import describe, stats_table, write_messages
from retention.engines.select import Engines
from retention.errors import RefusedError, UsageError, VerificationError
from retention.ports import Swap
from retention.rules.requests import Delete, Purge, Request
from retention.schemas.files import LOGGED_FILES
from tests.support.laying import (
    SECOND,
    START,
    File,
    Laid,
    even_segments,
    held,
    lay,
    rows_of,
    warehouse_with,
)

FORMATS = pytest.mark.parametrize("format_", ["delta", "delta-vectors", "parquet"])


def stream_of_40(folder: Path, format_: str, **limits: Any) -> Warehouse:
    warehouse = warehouse_with(folder, format_, START + 100 * SECOND, **limits)
    lay(warehouse.stream("ORDERS").opened, even_segments(4, 10))
    return warehouse


def applied(warehouse: Warehouse, as_of_ns: int) -> str:
    [outcome] = warehouse.apply(as_of=as_of_ns)
    assert outcome.value is not None, outcome.sentence
    return outcome.value.run


@FORMATS
def test_undo_brings_back_exactly_what_a_run_removed(warehouse: Path, format_: str) -> None:
    streams = stream_of_40(warehouse, format_, max_age="60s", max_msgs_per_subject=8)
    before = held(streams)
    run = applied(streams, START + 75 * SECOND)
    lost = before.num_rows - held(streams).num_rows
    restored = streams.undo(run)["restored_messages"]
    assert held(streams).equals(before)
    assert restored == lost > 0
    assert streams.history()[0]["undoes"] == run


@FORMATS
def test_runs_are_undone_newest_first_or_oldest_first(warehouse: Path, format_: str) -> None:
    streams = stream_of_40(warehouse, format_, max_age="60s")
    before = held(streams)
    first = applied(streams, START + 65 * SECOND)
    between = held(streams)
    second = applied(streams, START + 68 * SECOND)
    streams.undo(second)
    assert held(streams).equals(between)
    streams.undo(first)
    assert held(streams).equals(before)
    runs = [applied(streams, START + at * SECOND) for at in (70, 73)]
    for run in runs:
        streams.undo(run)
    assert held(streams).equals(before)


def test_a_run_is_undone_once(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, "parquet", max_age="60s")
    run = applied(streams, START + 75 * SECOND)
    undone_by = streams.undo(run)["run"]
    with pytest.raises(UsageError, match=f"undone already, by {undone_by}"):
        streams.undo(run)


def test_a_run_that_removed_nothing_has_nothing_to_undo(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, "parquet", max_age="1h")
    run = applied(streams, START + 75 * SECOND)
    with pytest.raises(UsageError, match="removed nothing"):
        streams.undo(run)


def test_an_unknown_run_cannot_be_undone(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, "parquet", max_age="1h")
    with pytest.raises(UsageError, match=r"no stream .* has such a run"):
        streams.undo("20260101T000000Z-none")


@FORMATS
def test_after_grace_undo_is_refused_and_changes_nothing(warehouse: Path, format_: str) -> None:
    streams = stream_of_40(warehouse, format_, max_age="60s")
    run = applied(streams, START + 75 * SECOND)
    for path in warehouse.rglob("segment=1/*.parquet"):
        if "subjects" not in path.parts:
            path.unlink()
    after = held(streams)
    with pytest.raises(VerificationError):
        streams.undo(run)
    assert held(streams).equals(after)


def interleaved(warehouse: Path, format_: str) -> Warehouse:
    """Two interleaved files of one segment, the first with only `a`, the second with `b`."""
    streams = warehouse_with(warehouse, format_, START + 100 * SECOND)
    log = [Laid(seq, "ab"[seq % 2], START + seq * SECOND) for seq in range(1, 10)]
    lay(streams.stream("ORDERS").opened, [File(1, log[::2]), File(1, log[1::2])])
    return streams


@FORMATS
@pytest.mark.parametrize("asked", [Purge("a"), Purge("b", keep=2), Delete((2, 3))])
def test_files_whose_sequences_interleave_come_back(
    warehouse: Path, format_: str, asked: Request
) -> None:
    streams = interleaved(warehouse, format_)
    before = held(streams)
    with Engines("local") as engines:
        run = remove_now(streams.stream("ORDERS").opened, asked, engines).run
    streams.undo(run)
    assert held(streams).equals(before)
    assert streams.stream("ORDERS").state().messages == 9


def test_a_message_that_is_there_again_keeps_its_file_from_coming_back(warehouse: Path) -> None:
    streams = interleaved(warehouse, "parquet")
    opened = streams.stream("ORDERS").opened
    with Engines("local") as engines:
        run = remove_now(opened, Purge("a"), engines).run
    [lay_again] = opened.store.stage(0, 1)
    write_messages(lay_again.location, [rows_of([Laid(4, "a")])])
    added = stats_table([describe(lay_again).stats])
    snapshot = opened.store.snapshot()
    compared = RowsCompared(snapshot.files["path"].combine_chunks())
    swap = Swap(LOGGED_FILES.empty_table(), added, {"run": "theirs"}, [compared])
    opened.store.commit(swap, snapshot)
    with pytest.raises(
        RefusedError, match=r"another writer .* 1 are in the table, and 3 are not \(2, 6, 8\)"
    ):
        streams.undo(run)


def rolled_back(table: DeltaTable) -> None:
    table.restore(table.version() - 1)


def rolled_back_and_rewritten(table: DeltaTable) -> None:
    rolled_back(table)
    updated(table)


def updated(table: DeltaTable) -> None:
    table.update(updates={"msg_id": "'x'"}, predicate="seq > 0")


def emptied(table: DeltaTable) -> None:
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


NOTHING_TO_UNDO = (
    r"nothing to undo: all 17 messages that run \S+ removed are in the table again "
    r"\(RESTORE by \S+, version 3\)"
)
REWRITTEN = (
    r"{} by \S+ \(version 3\) has rewritten 1 of 1 file .*table is sound, nothing was changed; none of 17 "
    r".* of 2 removed files, 2 can still be read \(.*segment=1/.*\); RESTORE TABLE .* AS OF 2 "
)
ACTS: dict[str, tuple[Callable[[DeltaTable], object], str]] = {
    "RESTORE": (rolled_back, NOTHING_TO_UNDO),
    "RESTORE and UPDATE": (rolled_back_and_rewritten, NOTHING_TO_UNDO),
    "VACUUM": (
        emptied,
        r"2 of 2 removed files no longer exist, .*VACUUM.* sound, .*; none of 17 removed messages",
    ),
}


REWRITES: dict[str, tuple[Callable[[DeltaTable], object], str]] = {
    "OPTIMIZE": (lambda table: table.optimize.z_order(["seq"]), REWRITTEN.format("OPTIMIZE")),
    "UPDATE": (updated, REWRITTEN.format("UPDATE")),
}


@pytest.mark.parametrize("name", REWRITES)
def test_what_others_have_rewritten_stays_and_what_was_removed_comes_back(
    warehouse: Path, name: str
) -> None:
    act, wanted = REWRITES[name]
    streams = stream_of_40(warehouse, "delta", max_msgs=23)
    before = held(streams)
    run = applied(streams, START + 75 * SECOND)
    act(DeltaTable(str(warehouse / "streams/ORDERS/messages")))
    after = held(streams)
    ranges = warehouse / f"streams/ORDERS/_retention/reports/{run}.ranges.arrow"
    record = ranges.read_bytes()
    ranges.unlink()
    with pytest.raises(RefusedError, match=wanted):
        streams.undo(run)
    assert held(streams).equals(after)
    ranges.write_bytes(record)
    streams.undo(run)
    back = held(streams)
    assert back.slice(0, 17).equals(before.slice(0, 17))
    assert back.slice(17).equals(after)


@pytest.mark.parametrize("name", ACTS)
def test_what_others_did_to_the_table_is_told_as_it_is(warehouse: Path, name: str) -> None:
    act, wanted = ACTS[name]
    streams = stream_of_40(warehouse, "delta", max_msgs=23)
    run = applied(streams, START + 75 * SECOND)
    act(DeltaTable(str(warehouse / "streams/ORDERS/messages")))
    after = held(streams)
    kind = VerificationError if name == "VACUUM" else RefusedError
    with pytest.raises(kind, match=wanted) as refused:
        streams.undo(run)
    assert "stands twice" not in str(refused.value)
    assert "corrupt" not in str(refused.value)
    assert held(streams).equals(after)


@FORMATS
@pytest.mark.parametrize("goes_on", [False, True])
def test_of_a_table_put_back_from_a_copy_there_is_nothing_to_undo(
    warehouse: Path, format_: str, *, goes_on: bool
) -> None:
    streams = stream_of_40(warehouse, format_, max_msgs=23)
    copy = warehouse / "copy"
    shutil.copytree(warehouse / "streams", copy, symlinks=True)
    run = applied(streams, START + 75 * SECOND)
    shutil.rmtree(warehouse / "streams")
    copy.rename(warehouse / "streams")
    again = warehouse_with(warehouse, format_, START + 100 * SECOND, max_msgs=23)
    if goes_on:
        for number in range(2):
            again.stream("ORDERS").publish(['{"subject": "a"}'], "w", number + 1)
    after = held(again)
    with pytest.raises(RefusedError, match="nothing to undo"):
        again.undo(run)
    assert held(again).equals(after)


def test_of_an_emptied_trash_it_is_said_what_is_gone(warehouse: Path) -> None:
    streams = stream_of_40(warehouse, "parquet", max_msgs=23)
    run = applied(streams, START + 75 * SECOND)
    shutil.rmtree(warehouse / "streams/ORDERS/_retention/trash")
    with pytest.raises(
        VerificationError, match=r"2 of 2 removed files no longer exist.* none of 17"
    ):
        streams.undo(run)
