"""The pictures of the pages on rules: logs with the fates of their messages, `python -m scripts.rule_pictures`.

Each is drawn from the example of its page, laid out in a real warehouse. `tests/docs/test_rules.py` holds the
examples against their tables.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake
from ruamel.yaml import YAML

from retention import open_warehouse
from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.core.units import parse_duration
from retention.plots.charts import Box, Chart, Strip
from retention.plots.draw import draw
from retention.plots.palette import KEPT
from scripts.source_example import FATE, Row, source_chart, table_rows

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "semantics"
PICTURES = ROOT / "docs" / "pictures" / "rules"
NOW = 1_800_000_000 * 10**9
EXAMPLE = re.compile(r"```yaml\n(?P<settings>[^`]*)```\n\n(?P<table>(?:\|.*\n)+)")
ANY_SUBJECT = {"subjects": [">"], "no_ack": True}


@dataclass(frozen=True)
class Example:
    """A log of a page: its settings, and a row a message with its fate."""

    settings: dict[str, Any]
    rows: tuple[Row, ...]

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        return [row[name] for row in self.rows]

    def strip(self, title: str = "", group: str = "", fate: str = FATE) -> Strip:
        """The log as a strip; `group` names the column of segments, `fate` that of fates."""
        return Strip(tuple(_box(row, group, fate) for row in self.rows), title)


def examples(page: str) -> list[Example]:
    """The examples of a page, in its order."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return [
        Example(YAML(typ="safe").load(match["settings"]), tuple(table_rows(match["table"])))
        for match in EXAMPLE.finditer(text)
    ]


def outcome(example: Example, directory: Path) -> list[str]:
    """The fates of a stream's messages, as the engine decides them: `kept`, `held` or `removed: RULE`."""
    stream = _published(example, directory)
    rolled_up = {int(seq) for seq in example.column("seq")} - _stored(stream)
    plan = stream.plan()
    unheld = plan
    if "hold_for_consumers" in example.settings:
        unheld = _published(_without_hold(example), directory / "unheld").plan()

    def fate(seq: int) -> str:
        if seq in rolled_up:
            return f"removed: {stream.history()[0]['kind']}"
        if (rule := plan.explain(seq).rule) is not None:
            return f"removed: {rule}"
        return "held" if unheld.explain(seq).goes else KEPT

    return [fate(int(row["seq"])) for row in example.rows]


def _without_hold(example: Example) -> Example:
    kept = {key: value for key, value in example.settings.items() if key != "hold_for_consumers"}
    return replace(example, settings=kept)


def _published(example: Example, directory: Path) -> Stream:
    """A stream with the messages of an example; roll-ups are batches of their own."""
    warehouse = opened(directory, streams=[{"name": "EXAMPLE", **ANY_SUBJECT, **example.settings}])
    stream = warehouse.stream("EXAMPLE")
    batch: list[str] = []
    for row in example.rows:
        if "Rollup" in row.get("header", ""):
            stream.publish(batch)
            batch = []
        batch.append(_line(row))
    stream.publish(batch)
    for consumer in example.settings.get("consumers", ()):
        name = consumer["durable_name"]
        reader = stream.consumer(name)
        reader.fetch()
        reader.ack([int(row["seq"]) for row in example.rows if row[name] == "settled"])
    return stream


def _stored(stream: Stream) -> set[int]:
    return {seq for batch in stream.messages() for seq in batch["seq"].to_pylist()}


def _line(row: Row) -> str:
    headers = dict(row["header"].strip("`").split(": ") for _ in (1,) if row.get("header"))
    headers |= {"Nats-TTL": row["ttl"]} if row.get("ttl") else {}
    headers |= {"KV-Operation": "DEL"} if row.get("does") == "deletes" else {}
    age = parse_duration(row.get("age") or "1s")
    return json.dumps(
        {"subject": row["subject"], "data": "x", "headers": headers, "ts_ns": NOW - age}
    )


def opened(directory: Path, clock: Callable[[], int] = lambda: NOW, **settings: Any) -> Warehouse:
    """A warehouse of plain Parquet in a new directory."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {"defaults": {"format": "parquet"}, **settings}
    (directory / "retention.yaml").write_text(json.dumps(content), encoding="utf-8")
    return open_warehouse(directory, clock=clock)


def mirrored(example: Example, directory: Path) -> dict[str, list[str]]:
    """Stream → the subject of each message of the first stream, as it is stored there after a run; empty: it is not."""
    warehouse = opened(directory, **example.settings)
    names = [stream["name"] for stream in example.settings["streams"]]
    lines = [{"subject": subject, "data": "x"} for subject in example.column(names[0])]
    warehouse.stream(names[0]).publish([json.dumps(line) for line in lines])
    for each in warehouse.mirror():
        if each.error is not None:
            raise each.error
    copies: dict[str, list[str]] = {}
    for name in names:
        table = pa.concat_tables(warehouse.stream(name).messages())
        origins = table["seq"].to_pylist() if name != names[-1] else _origins(table)
        stored = dict(zip(origins, table["subject"].to_pylist(), strict=True))
        copies[name] = [stored.get(seq, "") for seq in range(1, len(lines) + 1)]
    return copies


def _origins(table: pa.Table) -> list[int]:
    """The sequences at their origin of sourced messages, from their header."""
    words = pc.utf8_split_whitespace(pc.cast(table["headers"], pa.string())).to_pylist()
    return [int(each[each.index("Nats-Stream-Source:") + 2]) for each in words]


def restored(example: Example, directory: Path) -> tuple[list[str], list[str]]:
    """The fates of a stream's messages after a pass with an archive, and after `restore`."""
    stream = _published(example, directory)
    every = [int(seq) for seq in example.column("seq")]
    plan = stream.plan()
    rules = {seq: plan.explain(seq).rule for seq in every}
    plan.apply(allow_large=True)
    after = _stored(stream)
    stream.restore()
    back = _stored(stream)
    first = [KEPT if seq in after else f"removed: {rules[seq]}" for seq in every]
    second = [KEPT if seq in after else "restored" if seq in back else "removed" for seq in every]
    return first, second


def purged(directory: Path) -> list[str]:
    """The fates of nine messages under `purge --subject c --keep 1`."""
    rows = tuple({"seq": str(seq), "subject": "cab"[seq % 3]} for seq in range(1, 10))
    plan = _published(Example({}, rows), directory).purge("c", keep=1)
    return [
        f"removed: {plan.explain(seq).rule}" if plan.explain(seq).goes else KEPT
        for seq in range(1, 10)
    ]


def topic_outcome(example: Example, directory: Path) -> list[str]:
    """The fates of a topic's messages; a message a minute younger than its segment's first begins the next segment."""

    def fates(number: int, **settings: Any) -> list[str | None]:
        clock = [NOW]
        config = {"name": "EXAMPLE", "roll_after": "1m", **example.settings, **settings}
        warehouse = opened(directory / str(number), lambda: clock[0], topics=[config])
        topic = warehouse.topic("EXAMPLE")
        for age in example.column("age"):
            clock[0] = NOW - parse_duration(age)
            topic.publish([json.dumps({"data": "x"})])
        clock[0] = NOW
        topic.store_offset(0, "consumer", 7, 3)
        plan = topic.plan()
        return [plan.explain(int(offset)).rule for offset in example.column("offset")]

    free = fates(1, respect_consumer_offsets=False)
    rules = fates(2)
    return [
        f"removed: {rule}" if rule else "held" if ruled else KEPT
        for rule, ruled in zip(rules, free, strict=True)
    ]


def table_outcome(example: Example, directory: Path) -> list[str]:
    """The fates of the rows of a table in place, which are in one file, the oldest first."""
    ages = [parse_duration(age) if age else None for age in example.column("age")]
    columns = {
        name: pa.array([cell or None for cell in example.column(name)], pa.string())
        for name in example.rows[0]
        if name not in {"row", "age", FATE}
    }
    if "version" in columns:
        columns["version"] = pc.cast(columns["version"], pa.int64())
    times = pa.array([None if age is None else (NOW - age) // 1000 for age in ages], pa.int64())
    columns["at"] = pc.cast(times, pa.timestamp("us", "UTC"))
    write_deltalake(directory / "lake", pa.table(columns))
    keyed = {"key": "key"} if "key" in columns else {}
    settings = {"name": "EXAMPLE", "location": "lake", "time": "at", **keyed, **example.settings}
    removed = opened(directory, tables=[settings]).table("EXAMPLE").plan().rows()
    limits = dict(zip(removed["row"].to_pylist(), removed["limit"].to_pylist(), strict=True))
    return [
        f"removed: {limits[row]}" if row in limits else KEPT for row in range(len(example.rows))
    ]


def merged(files: str, directory: Path) -> tuple[int, list[tuple[int, int]]]:
    """The number of files that a compaction merges, and the first and last sequence of the files after it.

    Args:
        files: their KB, such as `9 KB of an earlier merge, 1 KB`; multiplied by 50, so that footers do not matter.
        directory: a new one.
    """
    noise = random.Random(0)  # noqa: S311
    settings = {"name": "EXAMPLE", "compact": {"min_files": 3}, **ANY_SUBJECT}
    warehouse = opened(directory, streams=[settings])

    def store(size: int) -> None:
        body = noise.randbytes(size * 25_000).hex()
        warehouse.stream("EXAMPLE").publish([json.dumps({"subject": "a", "data": body})])

    for file in files.split(", "):
        size = int(file.split()[0])
        if file.endswith("merge"):
            for _ in range(3):
                store(size // 3)
            warehouse.compact().apply()
        else:
            store(size)
    work = warehouse.compact()
    plans = [outcome.value for outcome in work.plan]
    count = sum(merge.files.num_rows for plan in plans if plan is not None for merge in plan.merges)
    work.apply()
    after = [
        pq.read_table(file, columns=["seq"])["seq"]
        for file in directory.glob("streams/*/messages/*/*/*.parquet")
    ]
    return count, sorted((pc.min(seqs).as_py(), pc.max(seqs).as_py()) for seqs in after)


def charts(directory: Path) -> Iterator[tuple[str, Chart]]:
    """Every picture as a chart, by name."""
    for page, at, name, headline in PASSES:
        example = examples(page)[at]
        group = "segment" if "segment" in example.rows[0] else ""
        yield name, Chart(headline, _caption(example.settings), (example.strip(group=group),))
    fates = enumerate(purged(directory / "purge"), 1)
    nine = tuple({"seq": str(seq), "subject": "cab"[seq % 3], FATE: fate} for seq, fate in fates)
    asked = "retention purge STREAM --subject c --keep 1"
    yield "removals", Chart("A purge of one subject", asked, (Example({}, nine).strip(),))
    [archive] = examples("archives")
    strips = tuple(archive.strip(fate, fate=fate) for fate in ("after apply", "after restore"))
    yield "archives", Chart("Archived, removed and restored", "max_msgs: 2", strips)
    [mirror] = examples("mirrors")
    caption = "EU takes orders.eu.* and renames it."
    copies = tuple(_copies(mirror.column(name), name) for name in mirror.rows[0])
    yield "mirrors", Chart("A mirror and a stream with a source", caption, copies)
    yield "compaction", _compaction(directory / "compaction")
    yield "sources", source_chart(PAGES / "sources.md")


PASSES = (
    ("limits", 0, "limits", "The head is trimmed before each subject"),
    ("limits", 3, "max-age", "The age scan stops at the first young message"),
    ("ttl", 0, "ttl", "The shorter of age limit and lifetime wins"),
    ("log-compaction", 0, "log-compaction", "Deleted keys are removed whole"),
    ("key-values", 0, "key-values", "The last message of a key is its value"),
    ("consumers-release", 0, "consumers-release", "What no consumer needs is released"),
    ("consumers-hold", 0, "consumers-hold", "Limits wait for a consumer, up to a bound"),
    ("publish-and-import", 0, "roll-ups", "A roll-up replaces older messages"),
    ("topics", 0, "topics", "Segments are removed up to a held one"),
    ("tables", 0, "tables", "Rows of a table"),
)
"""Page, number of its example, name of the picture, headline."""


def _caption(settings: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in settings.items() if key != "consumers"}
    return re.sub('["{}]', "", json.dumps(shown))


def _box(row: Row, group: str, fate: str) -> Box:
    hidden = {"seq", "row", "offset", "does", group, fate, "after apply", "after restore"}
    lines = tuple(_line_of(name, cell) for name, cell in row.items() if name not in hidden)
    if "operation" in row:
        lines = (row["subject"], row["operation"])
    elif "does" in row:
        lines += (row["does"],)
    number = row.get("seq") or row.get("row") or row["offset"]
    word, _, rule = row[fate].partition(": ")
    return Box(number, lines, rule or word, word, f"{group} {row[group]}" if group else "")


def _line_of(name: str, cell: str) -> str:
    if name in {"billing", "audit"}:
        return f"{name} {'✓' if cell else '-'}"
    if name == "header":
        return "roll-up" if cell else ""
    return f"ttl {cell}" if name == "ttl" and cell else cell


def _copies(subjects: list[str], name: str) -> Strip:
    stored = [subject.removeprefix("orders.") for subject in subjects if subject]
    return Strip(
        tuple(
            Box(f"{seq}", (subject,), "stored", "stored") for seq, subject in enumerate(stored, 1)
        ),
        name,
    )


def _compaction(directory: Path) -> Chart:
    sizes = [9, 1, 1, 1]
    _, after = merged("9 KB of an earlier merge, 1 KB, 1 KB, 1 KB", directory)
    files = [sum([3, 3, 3, 1, 1, 1][first - 1 : last]) for first, last in after]

    def strip(title: str, files: list[int], word: str) -> Strip:
        boxes = (
            Box("file", (f"{size} KB",), "stored", "kept" if size == sizes[0] else word)
            for size in files
        )
        return Strip(tuple(boxes), title)

    before, result = strip("before", sizes, "merged"), strip("after", files, "new")
    return Chart(
        "Files of a segment",
        "min_files: 3; the first file is of an earlier merge.",
        (before, result),
    )


def main(target: Path = PICTURES) -> None:
    """Draw all of them as SVG."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, chart in charts(Path(directory)):
            draw(chart).save(target / f"{name}.svg")


if __name__ == "__main__":
    main()
