"""Layout by deadline on both stores: files expire as a whole, unopened, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.message_rows import complete_rows
from retention.core.table_updates import SetNextSeq
from retention.datafile.parquet import describe, stats_table, write_messages
from retention.errors import ForeignRowsError
from retention.ingest.append import append_rows
from retention.ports import Swap
from retention.schemas.files import LOGGED_FILES
from retention.stores.file_paths import siblings_of
from tests.support.inotify import opens_below
from tests.support.laying import SECOND, START, Laid, held, rows_of, warehouse_with
from tests.support.shares import FORMATS
from tests.support.trees import scramble

MINUTE, HOUR, DAY = 60, 3_600, 86_400
LIVES = ("60", "3600", "86400", "never", None)
COUNT, PAYLOAD = 1_000, b"x" * 1_000
AFTER_MINUTE, AFTER_HOUR = (START + (COUNT + life) * SECOND for life in (MINUTE, HOUR))
EACH = COUNT // len(LIVES)

BOTH = pytest.mark.parametrize("format_", FORMATS)
POLICIES: dict[str, dict[str, Any]] = {
    "ttl alone": {},
    "max_age": {"max_age": "30m"},
    "counts": {"max_msgs": 450, "max_msgs_per_subject": 80},
    "markers": {"subject_delete_marker_ttl": "10s"},
    "markers and limits": {
        "subject_delete_marker_ttl": "10s",
        "max_msgs": 300,
        "max_age": "45m",
    },
}


def warehouse_at(folder: Path, format_: str, now_ns: int, **settings: Any) -> Warehouse:
    settings = {"layout": "deadline", "allow_msg_ttl": True} | settings
    return warehouse_with(folder, format_, now_ns, "local", **settings)


def block(life: str | None) -> bytes | None:
    return None if life is None else b"NATS/1.0\r\nNats-TTL: %b\r\n\r\n" % life.encode()


def messages(count: int = COUNT, start: int = 0) -> pa.Table:
    """One message per second, with lifetimes in turn."""
    numbers = range(start, start + count)
    raw = pa.table(
        {
            "subject": [f"s.{number % 7}" for number in numbers],
            "headers": pa.array([block(LIVES[n % len(LIVES)]) for n in numbers], pa.binary()),
            "payload": pa.array([PAYLOAD] * count, pa.binary()),
            "ts_ns": pa.array([START + number * SECOND for number in numbers], pa.int64()),
        }
    )
    return complete_rows(raw, "file")


def filled(folder: Path, format_: str, now_ns: int, **settings: Any) -> Warehouse:
    warehouse = warehouse_at(folder, format_, now_ns, **settings)
    half = COUNT // 2
    for table in (messages(half), messages(half, half)):
        append_rows(warehouse.stream("ORDERS").opened, [table.slice(0, 7), table.slice(7)])
    return warehouse


def files_of(stream: Stream) -> pa.Table:
    store = stream.opened.store
    return store.inventory(store.snapshot()).files


def data_opens(opened: list[str]) -> list[str]:
    return [path for path in opened if "/segment=" in path and "/subjects/" not in path]


def scramble_all(folder: Path) -> None:
    random = np.random.default_rng(7)
    for file in (folder / "streams/ORDERS/messages").rglob("segment=*/*.parquet"):
        scramble(file, random)


def applied(warehouse: Warehouse) -> Any:
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    return outcome.value


@BOTH
def test_an_append_divides_and_reads_the_same(tmp_path: Path, format_: str) -> None:
    warehouse = filled(tmp_path, format_, AFTER_MINUTE)
    files = files_of(warehouse.stream("ORDERS"))
    assert files.num_rows == 2 * len(LIVES)
    assert files["segment"].unique().to_pylist() == [1]
    assert siblings_of(files["path"]).null_count == 0
    lines = filled(tmp_path / "plain", format_, AFTER_MINUTE, layout="sequence")
    assert held(warehouse).equals(held(lines))
    assert files_of(lines.stream("ORDERS")).num_rows == 2


@BOTH
def test_a_publish_divides(tmp_path: Path, format_: str) -> None:
    warehouse = warehouse_at(tmp_path, format_, START)
    life = {"60": "60", "never": "never"}
    lines = [
        {
            "subject": "a",
            "data": "x" * 1_000,
            "headers": {"Nats-TTL": life["never" if n % 2 else "60"]},
        }
        for n in range(400)
    ]
    warehouse.stream("ORDERS").publish([json.dumps(line) for line in lines])
    files = files_of(warehouse.stream("ORDERS"))
    assert files["never"].to_pylist() == [0, 200]
    assert held(warehouse)["seq"].to_pylist() == list(range(1, 401))


@BOTH
def test_messages_that_died_together_go_unopened(tmp_path: Path, format_: str) -> None:
    filled(tmp_path, format_, START)
    scramble_all(tmp_path)
    warehouse = warehouse_at(tmp_path, format_, AFTER_MINUTE)
    with opens_below(tmp_path / "streams") as opened:
        report = applied(warehouse)
        state = warehouse.stream("ORDERS").state()
        later = applied(warehouse_at(tmp_path, format_, AFTER_HOUR))
        idle = applied(warehouse_at(tmp_path, format_, AFTER_HOUR + SECOND))
    assert data_opens(opened) == []
    assert report.by_rule == later.by_rule == {"msg_ttl": EACH}
    assert (report.files_read, report.bytes_read, later.files_read) == (0, 0, 0)
    assert (state.messages, state.last_seq) == (COUNT - EACH, COUNT)
    assert idle.removed_messages == 0


@BOTH
def test_only_the_file_with_some_deadlines_due_is_read_and_its_copy_stays_one(
    tmp_path: Path, format_: str
) -> None:
    filled(tmp_path, format_, START)
    middle = START + (COUNT // 4 + MINUTE) * SECOND
    report = applied(warehouse_at(tmp_path, format_, middle))
    assert report.removed_messages == COUNT // 4 // len(LIVES) + 1
    # One file is probed, read again to be copied, and its copy is read back.
    assert report.files_read == 3
    warehouse = warehouse_at(tmp_path, format_, AFTER_MINUTE)
    assert files_of(warehouse.stream("ORDERS")).num_rows == 2 * len(LIVES)
    scramble_all(tmp_path)
    with opens_below(tmp_path / "streams") as opened:
        applied(warehouse)
    assert data_opens(opened) == []


@BOTH
def test_what_went_unopened_comes_back_unopened(tmp_path: Path, format_: str) -> None:
    before = held(filled(tmp_path, format_, START))
    warehouse = warehouse_at(tmp_path, format_, AFTER_MINUTE)
    run = applied(warehouse).run
    with opens_below(tmp_path / "streams") as opened:
        warehouse.undo(run)
    assert data_opens(opened) == []
    assert held(warehouse).equals(before)
    assert applied(warehouse_at(tmp_path, format_, AFTER_MINUTE)).removed_messages == EACH


@pytest.mark.thorough
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@BOTH
def test_both_layouts_lose_the_same_by_the_same_rules(
    tmp_path: Path, format_: str, policy: dict[str, Any]
) -> None:
    layouts = ("sequence", "deadline")
    for layout in layouts:
        filled(tmp_path / layout, format_, START, layout=layout, **policy)
    for seconds in (MINUTE + 300, 900, HOUR, HOUR + COUNT, 2 * DAY):
        one, other = (
            warehouse_at(
                tmp_path / layout, format_, START + seconds * SECOND, layout=layout, **policy
            )
            for layout in layouts
        )
        planned = [warehouse.stream("ORDERS").plan().plan for warehouse in (one, other)]
        explained = [
            warehouse.stream("ORDERS").explain(seq).rule
            for warehouse in (one, other)
            for seq in (held(one)["seq"].to_pylist()[at] for at in (0, 3, -1))
        ]
        reports = [applied(warehouse) for warehouse in (one, other)]
        assert reports[0].by_rule == reports[1].by_rule
        assert planned[0].actions.markers.equals(planned[1].actions.markers)
        assert explained[:3] == explained[3:]
        left = [held(warehouse).drop_columns(["segment"]) for warehouse in (one, other)]
        assert left[0].equals(left[1])


@BOTH
def test_a_rewrite_divides_what_was_not_divided(tmp_path: Path, format_: str) -> None:
    before = held(filled(tmp_path, format_, START, layout="sequence"))
    middle = START + (COUNT // 4 + MINUTE) * SECOND
    warehouse = warehouse_at(tmp_path, format_, middle)
    report = applied(warehouse)
    files = files_of(warehouse.stream("ORDERS"))
    assert files.num_rows == len(LIVES) + 1
    assert files["messages"].to_pylist()[-1] == COUNT // 2
    warehouse.undo(report.run)
    assert held(warehouse).equals(before)


@BOTH
def test_files_with_the_name_of_kin_that_hold_a_message_twice_are_refused(
    tmp_path: Path, format_: str
) -> None:
    warehouse = warehouse_at(tmp_path, format_, START)
    store = warehouse.stream("ORDERS").opened.store
    store.create()
    targets = store.stage(0, 1, 2)
    for target, seqs in zip(targets, ((1, 2, 3), (2, 4)), strict=True):
        write_messages(target.location, [rows_of([Laid(seq) for seq in seqs])])
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=stats_table([describe(target).stats for target in targets]),
        metadata={"run": "laid"},
        updates=[SetNextSeq(0, 5)],
    )
    store.commit(swap, store.snapshot())
    with pytest.raises(ForeignRowsError, match="sequence 2 stands twice"):
        warehouse.stream("ORDERS").plan()


@BOTH
def test_mirrors_divide_by_their_own_layout_whatever_that_of_the_origin(
    tmp_path: Path, format_: str
) -> None:
    filled(tmp_path, format_, START, layout="sequence")
    config = json.loads((tmp_path / "retention.yaml").read_text(encoding="utf-8"))
    mirror = {
        "name": "COPY",
        "mirror": {"name": "ORDERS"},
        "layout": "deadline",
        "allow_msg_ttl": True,
    }
    again = {"name": "AGAIN", "mirror": {"name": "COPY"}, "allow_msg_ttl": True}
    path = tmp_path / "mirrors.json"
    path.write_text(json.dumps(config | {"streams": [*config["streams"], mirror, again]}))
    warehouse = open_warehouse(path, engine="local", clock=lambda: START)
    assert all(outcome.value for outcome in warehouse.mirror(["COPY", "AGAIN"]))
    for name in ("COPY", "AGAIN"):
        assert held(warehouse, name).equals(held(warehouse))
    assert files_of(warehouse.stream("AGAIN")).num_rows == 1
    copies = files_of(warehouse.stream("COPY"))
    assert copies.num_rows == len(LIVES)
    assert siblings_of(copies["path"]).null_count == 0
