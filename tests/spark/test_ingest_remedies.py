"""The options named in refusals of `jobs.ingest`, used as written: the ingest continues, each row once."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.api.warehouse import open_warehouse
from retention.jobs import ingest as job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
JSON = ("--source-format", "json")


def words(source: Path, *more: str) -> list[str]:
    """The command line of an ingest into a stream beside the source."""
    return [
        *("ingest", "--warehouse", str(source.parent / "warehouse"), "--stream", "ORDERS"),
        *("--source", str(source), "--time", "now", "--column", "subject='orders.a'"),
        *("--column", "payload=CAST(what AS STRING)", *more),
    ]


def append(source: Path, *rows: str) -> None:
    write_deltalake(source, pa.table({"what": list(rows)}), mode="append")


def lines(source: Path, name: str, *rows: str) -> None:
    source.mkdir(exist_ok=True)
    text = "".join(json.dumps({"what": row}) + "\n" for row in rows)
    (source / name).write_text(text)


def shrink(source: Path) -> Path:
    lines(source, "a.json", "new")
    return source


def cut(source: Path) -> Path:
    (source / "b.json").write_text('{"what": "b1"}\n{"what"')
    return source


def rewrite(source: Path) -> Path:
    DeltaTable(source).update(updates={"what": "concat(what, '!')"})
    return source


def lose(source: Path) -> Path:
    append(source, "lost")
    before = DeltaTable(source, version=0).file_uris()
    (lost,) = {*DeltaTable(source).file_uris()} - {*before}
    Path(lost).unlink()
    append(source, "later")
    return source


def move(source: Path) -> Path:
    return Path(shutil.move(source, source.with_name("elsewhere")))


def make_anew(source: Path) -> Path:
    shutil.rmtree(source)
    append(source, "a1", "c1")
    return source


@dataclass(frozen=True)
class Refused:
    """A change of a partly ingested source, and the remedy in the refusal."""

    harm: Callable[[Path], Path]
    """Returns the new location of the source."""
    said: str
    """A pattern; its group is the option to continue."""
    left: tuple[str, ...]
    """The final payloads; the earlier ones are `a1` and `a2`."""
    is_table: bool = True
    code: int = 4


CASES = {
    "a file shrank, and is left": Refused(
        shrink, r"a\.json shrank .*(--skip) FILE", ("a1", "a2"), is_table=False
    ),
    "a file shrank, and is new": Refused(
        shrink, r"a\.json shrank .*(--take) FILE", ("a1", "a2", "new"), is_table=False
    ),
    "rows were rewritten, and stay": Refused(
        rewrite, r"rewrites rows that were taken: .*\((--skip 1) continues without", ("a1", "a2")
    ),
    "rows were rewritten, and are new": Refused(
        rewrite, r"rewrites rows .* (--take 1) takes all", ("a1", "a2", "a1!", "a2!")
    ),
    "a file is gone": Refused(
        lose,
        r"is missing, as after a VACUUM, .*run once with (--skip \S+) to",
        ("a1", "a2", "later"),
    ),
    "the source moved": Refused(move, r"was moved or copied; .*(--skip table)", ("a1", "a2")),
    "the table was made anew": Refused(
        make_anew, r"not the table that was taken .*(--take table)", ("a1", "a2", "a1", "c1")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_ingest_goes_on_by_the_option_that_its_refusal_names(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    case, source = CASES[name], tmp_path / "source"

    def run(*options: str) -> int:
        given = words(source, *(() if case.is_table else JSON))
        monkeypatch.setattr(sys, "argv", [*given, *options])
        return job.main()

    if case.is_table:
        append(source, "a1", "a2")
    else:
        lines(source, "a.json", "a1", "a2")
    assert run() == 0
    source = case.harm(source)
    capsys.readouterr()
    assert run() == case.code
    said = re.search(case.said, capsys.readouterr().err)
    assert said is not None
    option, _, what = said[1].partition(" ")
    assert run(option, what or str(source / "a.json")) == 0
    assert run() == 0
    stream = open_warehouse(tmp_path / "warehouse", engine="local").stream("ORDERS")
    payloads = pa.concat_tables(stream.messages())["payload"].to_pylist()
    assert sorted(payload.decode() for payload in payloads) == sorted(case.left)


@pytest.mark.thorough
@pytest.mark.parametrize("is_corrected", [True, False])
def test_an_ingest_goes_on_once_a_damaged_file_is_whole_or_moved_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_corrected: bool
) -> None:
    source = tmp_path / "source"
    lines(source, "a.json", "a1")
    cut(source)
    monkeypatch.setattr(sys, "argv", words(source, *JSON))
    assert job.main() == 6
    if is_corrected:
        lines(source, "b.json", "b1", "b2")
    else:
        shutil.move(source / "b.json", tmp_path)
    assert job.main() == 0
    stream = open_warehouse(tmp_path / "warehouse", engine="local").stream("ORDERS")
    assert len(pa.concat_tables(stream.messages())) == (3 if is_corrected else 1)
