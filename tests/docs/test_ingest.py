"""The recipes of docs/ingest.md and of the how-to page on Kafka, each run verbatim on a source of another program."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.jobs import run_job
from tests.support.sandboxes import Commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parents[2] / "docs"
RECIPE = re.compile(r"```yaml\n# (\w+)\n(.*?)```\n\n```console\n(.*?)```", re.DOTALL)
AT_MS = 1_764_000_000_000


def kafka(folder: Path) -> None:
    """Two partitions, one with decreasing times; two keys are deleted, and one of them is set again."""
    rows = {
        0: [(7, "user:1", "pending"), (8, "user:1", "done"), (9, "", "x"), (10, "", None)],
        1: [(7, "user:2", "v1"), (8, "user:2", None), (9, "user:2", "v2")],
    }
    for partition, messages in rows.items():
        offsets, keys, values = zip(*messages, strict=True)
        at = [AT_MS + 5_000 - offset * 1_000 * partition for offset in offsets]
        table = pa.table(
            {
                "kafka_offset": pa.array(offsets, pa.int64()),
                "kafka_timestamp": pa.array(at, pa.timestamp("ms", "UTC")),
                "key": pa.array([key.encode() for key in keys]),
                "value": pa.array([value and value.encode() for value in values], pa.binary()),
            }
        )
        place = folder / f"topics/shop/partition={partition}"
        place.mkdir(parents=True)
        pq.write_table(table, place / f"shop+{partition}+{offsets[0]:010}.parquet")


def tenants(folder: Path) -> None:
    """A Delta table of events."""
    rows: dict[str, Any] = {
        "tenant": ["acme", "b.c", None, "acme"],
        "happened_at": [datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (1, 2, 3, 4)],
        "amount": [1, 2, 3, 4],
    }
    write_deltalake(str(folder / "events"), pa.table(rows))


def changes(folder: Path) -> None:
    """One updated and one deleted customer, out of log order."""
    events: list[tuple[int, str, Any, Any]] = [
        (103, "u", {"id": 7, "name": "ada"}, {"id": 7, "name": "Ada"}),
        (101, "c", None, {"id": 7, "name": "ada"}),
        (102, "r", None, {"id": 8, "name": "bob"}),
        (104, "d", {"id": 7, "name": "Ada"}, None),
    ]
    (folder / "changes").mkdir()
    lines = (
        json.dumps({"op": op, "before": before, "after": after, "ts_ms": AT_MS, "source": {"lsn": lsn}})
        for lsn, op, before, after in events
    )  # fmt: skip
    (folder / "changes" / "1.json").write_text("\n".join(lines) + "\n")


def feed(folder: Path) -> None:
    """The change data feed of a table with rows written, updated and deleted, one commit each."""
    table, settings = str(folder / "people"), {"delta.enableChangeDataFeed": "true"}
    people = pa.table({"id": ["7", "8"], "name": ["ada", "bob"]})
    write_deltalake(table, people, configuration=settings)
    DeltaTable(table).update({"name": "'Ada'"}, predicate="id = '7'")
    DeltaTable(table).delete("id = '8'")
    changed = pa.table(DeltaTable(table).load_cdf().read_all())
    at = changed.schema.get_field_index("_commit_timestamp")
    times = [AT_MS + version * 1_000 for version in changed["_commit_version"].to_pylist()]
    changed = changed.set_column(
        at, "_commit_timestamp", pa.array(times, pa.timestamp("ms", "UTC"))
    )
    (folder / "feed").mkdir()
    pq.write_table(changed, folder / "feed" / "1.parquet")


SOURCES: dict[str, Callable[[Path], None]] = {
    "kafka": kafka, "tenants": tenants, "changes": changes, "feed": feed
}  # fmt: skip
PAGES = {"kafka": DOCS / "how-to" / "kafka-dump.md"}
"""The pages of recipes that are not in ingest.md."""


def page_of(name: str) -> Path:
    """The page with a recipe."""
    return PAGES.get(name, DOCS / "ingest.md")


def ran(folder: Path, command: str) -> str:
    """The output of a command of the page, without its seconds."""
    program, *arguments = shlex.split(command)
    if program == "retention":
        done = Commands(folder).run(*arguments)
        assert done.exit_code == 0, done.output
        return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert (program, *arguments[:2]) == ("python", "-m", "retention.jobs.ingest")
    ended = run_job("ingest", folder, *arguments[2:])
    assert ended.returncode == 0, ended.stderr
    return re.sub(r"\d+\.\d s$", "4.2 s", ended.stderr + ended.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("name", SOURCES)
def test_a_recipe_does_what_the_page_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """After an intended change, `ACCEPT=1 pytest tests/docs/test_ingest.py` writes the new output into the page."""
    del spark
    place = page_of(name)
    page = place.read_text(encoding="utf-8")
    [(config, console)] = [found[1:] for found in RECIPE.findall(page) if found[0] == name]
    (tmp_path / "retention.yaml").write_text(f"warehouse: .\n{config}")
    SOURCES[name](tmp_path)
    commands = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
    printed = "".join(f"$ {command}\n{ran(tmp_path, command)}" for command in commands)
    if os.environ.get("ACCEPT"):
        place.write_text(page.replace(console, printed), encoding="utf-8")
    else:
        assert printed == console


def test_every_recipe_of_the_pages_is_tried() -> None:
    for page in {*map(page_of, SOURCES)}:
        names = [name for name, *_ in RECIPE.findall(page.read_text(encoding="utf-8"))]
        assert names == [name for name in SOURCES if page_of(name) == page]
