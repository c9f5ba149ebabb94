"""The demo's last part: a mistaken limit is undone after a compaction; then the space of dead files is reclaimed."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from retention import open_warehouse
from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.core.outcomes import Outcome
from retention.core.units import HOUR, format_size, parse_instant
from retention.history.report import RunReport
from retention.views.reclaim import reclaim_text
from retention.views.text_compaction import compaction_text

FROM, NIGHT = "2013-12-25T05:00:00Z", "2013-12-31T05:00:00Z"
"""Six days before the last day of the year, and the night of the mistake."""
SELDOM_NS, OFTEN_NS = 6 * HOUR, HOUR
CONFIG = """\
streams:
  - name: DEPARTURES
    subjects: [flights.>]
    max_age: {max_age}
    grace: 2s                      # removed files are kept as long: short, so that nobody has to wait; 7d by default
    segment_span: 1w
    compact: true
"""
MISTAKEN, RIGHT = "1h", "3d"
GRACE_S = 2

Tell = Callable[[str, str], None]
Value = TypeVar("Value")


def show(directory: Path, flights: pa.Table, as_of: str, tell: Tell) -> None:
    """Apply a mistaken limit, publish and compact after it, undo it, and finally reclaim dead files."""
    place = directory / "departures"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    warehouse = _configured(place, MISTAKEN)
    batches = _publish(warehouse, flights, (FROM, NIGHT), SELDOM_NS)
    before = _messages(_stream(warehouse))
    tell(
        "mistake",
        f"{before.num_rows:,} departures of six days, in {batches} commits; the limit should be max_age {RIGHT}, and "
        f"somebody writes {MISTAKEN}",
    )
    report = _done(warehouse.apply(as_of=NIGHT))
    tell("gone", f"removed {report.removed_messages:,} messages: max_age {MISTAKEN}")
    tell("asked", _stream(warehouse).explain(1).sentence)
    batches = _publish(warehouse, flights, (NIGHT, as_of), OFTEN_NS)
    tell("on top", f"a day's departures come in {batches} commits; then {_compacted(warehouse)}")
    _undo(warehouse, report, before, tell)
    _reclaim(place, as_of, tell)


def _undo(warehouse: Warehouse, report: RunReport, before: pa.Table, tell: Tell) -> None:
    """Show the effect of an undo, undo, and compare the restored messages with the published ones."""
    shown = warehouse.show_undo(report.run)
    how = "rewriting" if shown["rewritten"] else "with"
    tell(
        "dry run",
        f"by `undo --dry-run`, would restore {shown['restored_messages']:,} messages, {how} {shown['files']} files",
    )
    warehouse.undo(report.run)
    after = _messages(_stream(warehouse))
    if not after.slice(0, before.num_rows).equals(before):
        sys.exit("The messages are not what they were: this is a defect, please report it.")
    tell(
        "undone",
        f"restored all {before.num_rows:,}, each with its sequence, subject, time, headers and payload as before; "
        f"{after.num_rows - before.num_rows:,} were stored since",
    )


def _reclaim(place: Path, as_of: str, tell: Tell) -> None:
    """Apply the intended limit, compact, wait for the end of a short grace, and reclaim."""
    warehouse = _configured(place, RIGHT)
    report = _done(warehouse.apply(as_of=as_of))
    merged = _compacted(warehouse)
    tell(
        "meant",
        f"removed {report.removed_messages:,} messages: max_age {RIGHT}; {merged}; {_disk(place)} on the disk",
    )
    time.sleep(GRACE_S + 0.1)
    deleted = reclaim_text(_done(warehouse.reclaim().apply()))[0].partition(": ")[2]
    tell("reclaim", f"{deleted}; {_disk(place)} are left")


def _configured(place: Path, max_age: str) -> Warehouse:
    (place / "retention.yaml").write_text(CONFIG.format(max_age=max_age))
    return open_warehouse(place)


def _publish(warehouse: Warehouse, flights: pa.Table, span: tuple[str, str], every_ns: int) -> int:
    """Publish the departures between two instants, one commit per interval; returns the number of commits."""
    stream, commits = _stream(warehouse), 0
    start_ns, end_ns = map(parse_instant, span)
    for at_ns in range(start_ns, end_ns, every_ns):
        rows = _between(flights, at_ns, at_ns + every_ns).to_pylist()
        if rows:
            stream.publish(map(json.dumps, rows))
            commits += 1
    return commits


def _between(flights: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    at_ns = flights["ts_ns"]
    return flights.filter(pc.and_(pc.greater_equal(at_ns, start_ns), pc.less(at_ns, end_ns)))


def _compacted(warehouse: Warehouse) -> str:
    return next(iter(compaction_text(_done(warehouse.compact().apply())))).partition(": ")[2]


def _done(outcomes: list[Outcome[Value]]) -> Value:
    [outcome] = outcomes
    if outcome.value is None:
        raise outcome.error or RuntimeError(outcome.stream)
    return outcome.value


def _stream(warehouse: Warehouse) -> Stream:
    return warehouse.stream("DEPARTURES")


def _messages(stream: Stream) -> pa.Table:
    """All messages in their published form, because an undo may put them into other segments."""
    return pa.concat_tables(stream.messages()).drop_columns(["segment"]).combine_chunks()


def _disk(place: Path) -> str:
    files = [file for file in (place / "streams").rglob("*") if file.is_file()]
    return f"{len(files)} files, {format_size(sum(file.stat().st_size for file in files))}"
