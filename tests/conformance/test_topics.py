"""Topics compared with real servers: import of their logs, one pass, and comparison of the remaining segments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.log import Log
from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.guards import Guards
from retention.context.context import OpenedStream
from retention.core.table_updates import set_next_seqs, set_open_bases
from retention.datafile import parquet
from retention.engines.select import EngineName
from retention.formats.iggy.topic import ERAS, read_topic
from retention.history.report import RunReport
from retention.ports import Swap
from retention.schemas.files import LOGGED_FILES
from retention.schemas.messages import FILE_COLUMNS
from retention.stores.offset_table import Offsets, OffsetTable, Reader, StoredOffset
from tests.support.cases import lines_of
from tests.support.iggy_logs import NAMES, ORIGINALS, original

HERE = Path(__file__).parent
JUDGED = lines_of(HERE / "iggy-server.jsonl")
FORMATS = ("delta", "parquet")
US = 1_000
ANY_INSTANT = Guards(allow_future=True)


def warehouse_of(
    folder: Path, topics: Sequence[Mapping[str, Any]], table_format: str, engine: EngineName
) -> Warehouse:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"defaults": {"format": table_format}, "topics": topics}
    path = folder / "retention.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return open_warehouse(path, engine=engine)


def topic_of(said: Mapping[str, Any], name: str, partitions: int) -> dict[str, Any]:
    """A topic of `retention.yaml`, from a manifest or a case."""
    given = said | said.get("policy", {})
    topic = {key: given[key] for key in ("profile", "segment_size", "max_topic_size")}
    if "max_message_size" in given:
        topic["max_message_size"] = given["max_message_size"]
    return topic | {
        "name": name,
        "partitions": partitions,
        "message_expiry": given["message_expiry_us"],
    }


def stored(stream: Log) -> list[dict[str, Any]]:
    return [row for table in stream.messages() for row in table.to_pylist()]


def logged(directory: Path, era: Any) -> list[dict[str, Any]]:
    """The rows of a topic's directory, parsed from its logs."""
    parts = read_topic(str(directory)).parts(ERAS[era])
    return [row for part in parts for row in part.rows.to_pylist()]


def like(rows: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows match the expected ones in their known fields."""
    return [{key: row[key] for key in wanted[0]} for row in rows] == list(wanted)


def applied(warehouse: Warehouse, name: str, now_us: int) -> RunReport:
    [outcome] = warehouse.apply([name], now_us * US, ANY_INSTANT)
    assert outcome.value is not None, outcome.error
    return outcome.value


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_logs_of_a_real_server_come_in_and_a_pass_leaves_what_it_left(
    name: str, table_format: str, tmp_path: Path
) -> None:
    manifest = json.loads((ORIGINALS / name / "manifest.json").read_text())
    topic = topic_of(manifest, "orders", len(manifest["before"]))
    warehouse = warehouse_of(tmp_path / "lake", [topic], table_format, "local")
    stream = warehouse.topic("orders")
    before, after = (original(name, moment, tmp_path) for moment in ("before", "after"))
    imported = stream.import_iggy_log(before)
    assert not imported.findings
    assert like(stored(stream), logged(before, manifest["era"]))
    assert imported.messages == len(stored(stream))

    report = applied(warehouse, "orders", manifest["policy"]["now_us"])
    assert report.segments["dropped"] == sum(map(len, manifest["drop"].values()))
    assert (report.files_read, report.bytes_read, report.bytes_written) == (0, 0, 0)
    assert like(stored(stream), logged(after, manifest["era"]))
    assert applied(warehouse, "orders", manifest["policy"]["now_us"]).removed_messages == 0
    assert stream.import_iggy_log(before).already


def lay(opened: OpenedStream, case: Mapping[str, Any]) -> None:
    """Write the segments of a case, each with two messages of its first, last and latest times, in one commit."""
    stats, next_seq, open_base = [], {}, {}
    opened.store.create()
    snapshot = opened.store.snapshot()
    for partition, segments in case["partitions"].items():
        for start, end, first_us, last_us, max_us, size, _ in segments:
            open_base[int(partition)] = start
            next_seq[int(partition)] = start if end is None else end + 1
            if end is not None:
                [file] = opened.store.stage(int(partition), start)
                rows = segment_of(start, end, [first_us, last_us, max_us], size)
                parquet.write_messages(file.location, [rows])
                stats.append(parquet.describe(file).stats)
    added = parquet.stats_table(stats)
    updates = [*set_next_seqs(next_seq), *set_open_bases(open_base)]
    swap = Swap(LOGGED_FILES.empty_table(), added, {"run": "laid"}, updates=updates)
    opened.store.commit(swap, snapshot)
    OffsetTable(opened.root).update(lambda _: Offsets(offsets_of(case)))


def segment_of(start: int, end: int, times: Sequence[int], size: int) -> pa.Table:
    """Messages at `start`, in between and at `end`; fewer if there is no room."""
    first_us, last_us, max_us = times
    of = {start: first_us} | ({start + 1: max_us} if end > start + 1 else {}) | {end: last_us}
    rows = [
        {
            "seq": seq,
            "subject": "t",
            "ts_ns": time * US,
            "payload": b"",
            "size": size if seq == start else 0,
            "marker": False,
        }
        for seq, time in of.items()
    ]
    return pa.Table.from_pylist(rows, schema=FILE_COLUMNS)


def offsets_of(case: Mapping[str, Any]) -> dict[Reader, StoredOffset]:
    return {
        Reader(int(partition), "consumer", name): StoredOffset(offset, 0)
        for partition, consumers in case["stored_offsets"].items()
        for name, offset in consumers.items()
    }


@pytest.mark.parametrize("table_format", FORMATS)
def test_passes_drop_the_segments_that_servers_dropped(table_format: str, tmp_path: Path) -> None:
    topics = [topic_of(case, case["id"], len(case["partitions"])) for case in JUDGED]
    warehouse = warehouse_of(tmp_path, topics, table_format, "local")
    for case in JUDGED:
        stream = warehouse.new_stream(case["id"])
        lay(stream.opened, case)
        before = {(row["partition"], row["segment"]) for row in stored(stream)}
        applied(warehouse, case["id"], case["now_us"])
        rows = stored(stream)
        dropped = {(int(part), start) for part, starts in case["drop"].items() for start in starts}
        assert before - {(row["partition"], row["segment"]) for row in rows} == dropped, case["id"]
        for partition, first in case["first_readable"].items():
            left = [row["seq"] for row in rows if row["partition"] == int(partition)]
            assert min(left, default=None) == first, case["id"]
