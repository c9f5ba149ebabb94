from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retention.engines.choice import Engines
from retention.errors import ForeignRowsError, RefusedError, UsageError, VerificationError
from retention.parquet_files import describe, stats_table, write_messages
from retention.passes.run import remove_now
from retention.ports import Swap
from retention.rules.removal import Delete, Purge, Request
from retention.warehouse import Warehouse
from schemas.files import LOGGED_FILES
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

FORMATS = pytest.mark.parametrize("format_", ["delta", "parquet"])


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
def test_runs_are_undone_newest_first_down_to_the_oldest(warehouse: Path, format_: str) -> None:
    streams = stream_of_40(warehouse, format_, max_age="60s")
    before = held(streams)
    first = applied(streams, START + 65 * SECOND)
    between = held(streams)
    second = applied(streams, START + 68 * SECOND)
    with pytest.raises(RefusedError, match="undo that one first"):
        streams.undo(first)
    streams.undo(second)
    assert held(streams).equals(between)
    streams.undo(first)
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
    """Two files of one segment, the first with `a` alone, the second with `b`, each around the other."""
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
    lay_again = opened.store.stage(0, 1)
    write_messages(lay_again.location, [rows_of([Laid(4, "a")])])
    added = stats_table([describe(lay_again).stats])
    swap = Swap(LOGGED_FILES.empty_table(), added, {"run": "theirs"}, compared=True)
    opened.store.commit(swap, opened.store.snapshot())
    with pytest.raises(ForeignRowsError):
        streams.undo(run)
