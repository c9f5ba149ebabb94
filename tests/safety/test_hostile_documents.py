"""Hostile values in every field of every document of a stream: refused by name, without changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.core.archive_document import ArchiveManifest
from retention.core.documents import JsonDocument, StreamFormat, judge
from retention.core.stored_documents import (
    KeptConsumer,
    KeptOffsets,
    KeptTopic,
    LogEntry,
    PlanHeader,
)
from retention.errors import DamagedError
from retention.history.kinds import Applied
from retention.plan.planfile import load_plans
from retention.storage.checksum import with_checksum
from tests.support.sandboxes import ORDERS, Commands, commands, lines
from tests.support.trees import tree

ALL = os.environ.get("RETENTION_FOREIGN") == "all"
MISSING = object()
HOSTILE: dict[str, Any] = {
    "upward": "../../../precious",
    "absolute": "/etc/passwd",
    "escaped": "partition=0/segment=1/%2e%2e/%2e%2e/%2e%2e/precious.parquet",
    "backslashes": "..\\..\\precious",
    "a bell and a mark": "partition=0/segment=1/\x1b[2J\x07\u202e.parquet",
    "negative": -1,
    "beyond 64 bits": 2**64,
    "beyond anything": 10**400,
    "a text": "1",
    "a share": 0.5,
    "none": None,
    "a list": [1],
    "missing": MISSING,
    "long": "x" * 100_000,
}
FEW = 4
"""In a quick run, commands meet every n-th field, each with another hostile value; shapes meet all fields."""
FREE = (
    "who",
    "spark_application",
    "metadata",
    "policy",
    "held",
    "folded",
    "config",
    "archived",
    "changes",
)
"""Fields below this are not read by the engine, or validated by their readers; they must not lead outside."""
OPTIONAL = {"none", "missing"}


@dataclass(frozen=True)
class Kind:
    """A document: its path, its shape, its readers, and the tested fields."""

    file: str
    shape: type[JsonDocument]
    command: tuple[str, ...]
    inside: tuple[str | int, ...] = ()
    is_checked: bool = True


KINDS = {
    "manifest": Kind("archive/ORDERS/*/manifests/*.json", ArchiveManifest, ("restore", "ORDERS")),
    "plan": Kind(
        "monday", PlanHeader, ("apply", "--yes", "monday"), ("plans", 0), is_checked=False
    ),
    "log entry": Kind("w/streams/ORDERS/_retention/log/*2.json", LogEntry, ("messages", "ORDERS")),
    "run": Kind("w/runs/ORDERS/*.done.json", Applied, ("history",)),
    "consumer": Kind(
        "w/streams/ORDERS/consumers/*/*2.json", KeptConsumer, ("consumer", "ls", "ORDERS")
    ),
    "offsets": Kind("w/streams/clicks/offsets/*.json", KeptOffsets, ("offset", "ls", "clicks")),
    "topic": Kind("w/streams/clicks/_retention/topic.json", KeptTopic, ("state", "clicks")),
    "format": Kind(
        "w/streams/ORDERS/_retention/format.json",
        StreamFormat,
        ("state", "ORDERS"),
        is_checked=False,
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse after a run, with an archive, a saved plan, a consumer, and a topic with offsets."""
    folder = tmp_path_factory.mktemp("made")
    rules = ORDERS | {"max_age": None, "max_msgs": 36, "archive": "../archive"}
    file = folder / "w/retention.yaml"
    topics = [{"name": "clicks", "partitions": 2, "message_expiry": "7d"}]
    command = commands(folder / "w", rules)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"topics": topics}))
    command.json("publish", "ORDERS", stdin="\n".join(lines(72)))
    command.json("publish", "clicks", stdin='{"data": "x", "partition": 1}\n' * 4)
    command.json("offset", "store", "clicks", 1, 7, 2)
    command.json("consumer", "add", "ORDERS", "billing")
    assert command.run("apply", "--yes", "ORDERS").exit_code == 0
    file.write_text(file.read_text().replace('"max_msgs": 36', '"max_msgs": 10'))
    assert command.run("plan", "ORDERS", "-o", folder / "monday").exit_code == 0
    (folder / "precious.parquet").write_bytes(b"not ours")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "deep", symlinks=True))


def fields(content: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The positions of a document's values; the first element of a list represents all."""
    if at:
        yield at
    if isinstance(content, dict):
        for key, value in content.items():
            yield from fields(value, (*at, key))
    elif isinstance(content, list) and content:
        yield from fields(content[0], (*at, 0))


def put(content: Any, at: tuple[str | int, ...], value: object) -> None:
    for part in at[:-1]:
        content = content[part]
    if value is not MISSING:
        content[at[-1]] = value
    elif isinstance(content, dict):
        del content[at[-1]]
    else:
        content.pop(at[-1])


def quickly(number: int) -> list[str]:
    names = list(HOSTILE)
    return names if ALL else [names[number // FEW % len(names)]] if number % FEW == 0 else []


SIGNED = {"removed_bytes", "bytes", "version", "version_before", "version_after", "seconds"}
NAMES = {"stream", "kind", "status", "consumer", "origin", "warehouse", "host"}
"""User-chosen names: they may be any text, and are escaped before they become paths."""
IDENTIFIERS = {"run", "table_id", "plan_id", "path"}
TEXTS = {"upward", "absolute", "escaped", "backslashes", "a text", "a bell and a mark"}


def expected(at: tuple[str | int, ...], name: str) -> tuple[int, ...]:
    """The allowed results of a command: for a plausible value, also other than a refusal of the document."""
    last = str(at[-1])
    plausible = (
        name in OPTIONAL
        or any(part in FREE for part in at)
        or last in {"seconds", "state"}
        or (name == "negative" and (last in SIGNED or last.endswith("_ns")))
        or (name in TEXTS and last in NAMES)
        or (name == "a text" and last in IDENTIFIERS)
    )
    return (0, 2, 4, 6, 75) if plausible else (6,)


def attempt(place: Path, kind: Kind, words: tuple[str, ...]) -> tuple[int, str]:
    """Run a command; it may only change the stream's own files, and nothing if it is refused."""
    before = tree(place)
    done = Commands(place / "w").run(*words)
    after = tree(place)
    moved = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    moved = {name for name in moved if not name.endswith((".lease", ".lock"))}
    if done.exit_code:
        assert not moved, (words, moved, done.output)
    assert all(name.startswith(("w/streams/", "w/runs/", "archive/ORDERS/")) for name in moved), (
        moved
    )
    return done.exit_code, done.stderr


@pytest.mark.parametrize("name", KINDS)
def test_no_field_of_a_document_is_believed(place: Path, made: Path, name: str) -> None:
    kind = KINDS[name]
    file = max(place.glob(kind.file))
    words = tuple(str(place / word) if word == "monday" else word for word in kind.command)
    said = json.loads(file.read_text())
    said.pop("check", None)
    inner = said
    for part in kind.inside:
        inner = inner[part]
    wrong = []
    for number, at in enumerate(fields(inner)):
        for hostile in quickly(number):
            content = json.loads(json.dumps(said))
            put(content, (*kind.inside, *at), HOSTILE[hostile])
            file.write_text(json.dumps(with_checksum(content) if kind.is_checked else content))
            code, told = attempt(place, kind, words)
            if code not in expected(at, hostile) or any(one in told for one in "\x1b\x07\u202e"):
                wrong.append((at, hostile, code, told[-300:]))
            if code == 0:
                shutil.rmtree(place)
                shutil.copytree(made, place, symlinks=True)
    assert not wrong


@pytest.mark.parametrize("name", KINDS)
def test_every_field_of_every_shape_is_judged(made: Path, name: str) -> None:
    kind = KINDS[name]
    said = json.loads(max(made.glob(kind.file)).read_text())
    for part in kind.inside:
        said = said[part]
    for outer in ("check", *(("kind", "format_version") if name == "manifest" else ())):
        said.pop(outer, None)
    judge(kind.shape, said)
    believed = []
    for at in fields(said):
        for hostile, value in HOSTILE.items():
            content = json.loads(json.dumps(said))
            put(content, at, value)
            try:
                judge(kind.shape, content)
            except ValueError:
                continue
            if expected(at, hostile) == (6,):
                believed.append((at, hostile))
    assert not believed


COLUMNS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "upward": lambda column: pa.array(["../../../precious.parquet"] * len(column)),
    "escaped": lambda column: pa.array(["partition=0/segment=1/%2e%2e/x"] * len(column)),
    "negative": lambda column: pa.array([-1] * len(column)).cast(column.type),
    "none": lambda column: pa.nulls(len(column), column.type),
    "a text": lambda column: pa.array(["1"] * len(column)),
}


def changed(table: pa.Table, name: str, hostile: str) -> pa.Table | None:
    """A table with a hostile column; None: not possible."""
    at, column = table.schema.get_field_index(name), table[name].combine_chunks()
    if not len(column):
        return None
    if hostile in {"upward", "escaped", "a text"}:
        if pa.types.is_string(column.type) and hostile == "a text":
            return None
    elif hostile == "negative" and not pa.types.is_integer(column.type):
        return None
    return table.set_column(at, name, COLUMNS[hostile](column))


def hostile_parts(place: Path, part: str) -> Iterator[tuple[str, str]]:
    """Make each column of a saved plan hostile in turn, with a matching digest; yields the column and the value."""
    plan, beside = place / "monday", place / f"monday.{part}.parquet"
    table, document = pq.read_table(beside), json.loads(plan.read_text())
    for number, name in enumerate(table.column_names):
        for hostile in list(COLUMNS) if ALL else [list(COLUMNS)[number % len(COLUMNS)]]:
            forged = changed(table, name, hostile)
            if forged is not None:
                pq.write_table(forged, beside)
                document["sha256"][part] = hashlib.sha256(beside.read_bytes()).hexdigest()
                plan.write_text(json.dumps(document))
                yield name, hostile


@pytest.mark.parametrize("part", ["files", "rules", "removed"])
def test_no_column_of_a_plan_is_believed(place: Path, part: str) -> None:
    words = ("apply", "--yes", str(place / "monday"))
    attempts = [
        (*column, *attempt(place, KINDS["plan"], words)) for column in hostile_parts(place, part)
    ]
    assert attempts
    assert [wrong for wrong in attempts if wrong[2] != 6] == []


def is_meant(name: str, hostile: str) -> bool:
    """Whether a cause may have the value, because it decides nothing: any time, and no releases."""
    return (name.endswith(("_ns", "bytes")) and hostile == "negative") or (
        name.startswith("remaining_") and hostile == "none"
    )


def test_no_column_of_a_cause_is_believed_where_a_plan_explains_itself(place: Path) -> None:
    believed = []
    for name, hostile in hostile_parts(place, "cause"):
        try:
            [plan] = load_plans(str(place / "monday"))
            _ = plan.cause.files
        except DamagedError as error:
            assert "monday" in str(error)  # noqa: PT017
        else:
            believed += [] if is_meant(name, hostile) else [(name, hostile)]
    assert believed == []


def test_no_column_of_an_undo_record_is_believed(place: Path) -> None:
    [file] = place.glob("w/streams/ORDERS/_retention/reports/*.removed.arrow")
    run = file.name.removesuffix(".removed.arrow")
    table = pa.ipc.open_file(pa.BufferReader(file.read_bytes()[:-32])).read_all()
    wrong = []
    for number, name in enumerate(table.column_names):
        for hostile in list(COLUMNS) if ALL else [list(COLUMNS)[number % len(COLUMNS)]]:
            forged = changed(table, name, hostile)
            if forged is None or (hostile == "none" and table.schema.field(name).nullable):
                continue
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, forged.schema) as writer:
                writer.write_table(forged)
            content = sink.getvalue().to_pybytes()
            file.write_bytes(content + hashlib.sha256(content).digest())
            code, told = attempt(place, KINDS["run"], ("undo", run))
            if code not in ((6,) if not name.endswith("_ns") or hostile != "negative" else (0, 6)):
                wrong.append((name, hostile, code, told))
    assert not wrong


INSIDE: dict[str, Callable[[pa.Array], pa.Array]] = {
    "a list with nothing in it": lambda column: pa.array([[None]] * len(column), column.type),
    "more values than the other": lambda column: pa.array([[]] * len(column), column.type),
    "ranges that fall": lambda column: pa.array([[9, 3]] * len(column), column.type),
    "numbers below 0": lambda column: pa.array([[-1]] * len(column), column.type),
}
"""Forgeries of a column of lists."""


def test_no_column_of_a_record_of_ranges_is_believed(place: Path) -> None:
    [file] = place.glob("w/streams/ORDERS/_retention/reports/*.ranges.arrow")
    run = file.name.removesuffix(".ranges.arrow")
    table = pa.ipc.open_file(pa.BufferReader(file.read_bytes()[:-32])).read_all()
    forgeries = [
        (name, hostile, forged)
        for number, name in enumerate(table.column_names)
        for hostile in (list(COLUMNS) if ALL else [list(COLUMNS)[number % len(COLUMNS)]])
        if (forged := changed(table, name, hostile)) is not None
        if not (hostile == "none" and table.schema.field(name).nullable)
    ]
    for name in ("rules", "counts", "except_firsts", "except_lasts"):
        column = table[name].combine_chunks()
        for hostile, forge in INSIDE.items():
            if pa.types.is_string(column.type.value_type) and hostile not in list(INSIDE)[:2]:
                continue
            if name.startswith("except") and hostile == "more values than the other":
                continue
            at = table.schema.get_field_index(name)
            forged = table.set_column(at, table.schema.field(name), forge(column))
            forgeries.append((name, hostile, forged))
    wrong = []
    for name, hostile, forged in forgeries:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, forged.schema) as writer:
            writer.write_table(forged)
        content = sink.getvalue().to_pybytes()
        file.write_bytes(content + hashlib.sha256(content).digest())
        code, said = attempt(place, KINDS["run"], ("history", "show", run))
        if code != 6 and not (name == "bytes" and hostile == "negative"):
            wrong.append((name, hostile, code, said))
    assert not wrong


@pytest.mark.parametrize(
    "who",
    [
        7,
        "x",
        [],
        {},
        {"user": "\x1b[2J", "scheduler": "x"},
        {"scheduler": {"a": 7, "b": {"c": []}}},
    ],
)
def test_who_ran_a_run_is_for_people_only(place: Path, who: object) -> None:
    [file] = place.glob("w/runs/ORDERS/*.done.json")
    record = json.loads(file.read_text())
    record.pop("check")
    file.write_text(json.dumps(with_checksum(record | {"who": who})))
    done = Commands(place / "w").run("history", "show", record["run"])
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert Commands(place / "w").run("history").exit_code == 0


def test_a_rule_that_was_edited_is_not_believed(place: Path) -> None:
    plan, beside = place / "monday", place / "monday.rules.parquet"
    table, document = pq.read_table(beside), json.loads(plan.read_text())
    at = table.schema.get_field_index("rule")
    other = pa.array(
        ["max_age" if rule == "max_msgs" else "max_msgs" for rule in table["rule"].to_pylist()]
    )
    pq.write_table(table.set_column(at, table.schema.field(at), other), beside)
    document["sha256"]["rules"] = hashlib.sha256(beside.read_bytes()).hexdigest()
    plan.write_text(json.dumps(document))
    code, told = attempt(place, KINDS["plan"], ("apply", "--yes", str(plan)))
    assert code == 6, told
    assert "does not have the identity it claims" in told
    document["plans"][0]["by_rule"] = {"max_age": 26}
    plan.write_text(json.dumps(document))
    assert attempt(place, KINDS["plan"], ("apply", "--yes", str(plan)))[0] == 6


@pytest.mark.parametrize("run", ["../../../precious", "/etc/passwd", "..", "x\0y", "\x1b[2J"])
def test_a_run_of_a_hostile_name_is_none(place: Path, run: str) -> None:
    code, told = attempt(place, KINDS["run"], ("undo", run))
    assert code == 2, told
    assert "\x1b" not in told
