"""Changing sources, followed without Spark; `tests/spark` reads rows with Spark."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.api.warehouse import open_warehouse
from retention.engines.spark import session
from retention.errors import DamagedError, RefusedError, UsageError
from retention.ingest import table_source
from retention.ingest.sources import batches
from retention.ingest.table_source import Ingested, TableSource, ingest
from tests.support.list_reader import reading
from tests.support.plain_store import opened_stream, store_of

WRITTEN_AT = "/tmp/hi/fix"  # noqa: S108
FIXTURE = Path(__file__).parents[2] / "fixtures" / "ingest-spark-2026-11.tar.gz"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_source, "_reading", reading)


class Table:
    """A Delta table, ingested into a stream."""

    def __init__(self, folder: Path) -> None:
        self.opened = opened_stream(folder)
        self.place = folder / "table"

    def add(self, *payloads: str) -> None:
        write_deltalake(self.place, pa.table({"payload": payloads}), mode="append")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.place)

    def take(self, **wishes: str) -> Ingested:
        decided = {name: frozenset(text.split()) for name, text in wishes.items()}
        return ingest(self.opened, TableSource(str(self.place), **decided))  # type: ignore[arg-type]

    def rows(self) -> str:
        return "".join(
            sorted(row.decode() for row in store_of(self.opened).rows()["payload"].to_pylist())
        )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path)
    table.add("a")
    table.add("b")
    assert table.take() == Ingested("ORDERS", str(table.place), 1, 2, 78)
    return table


def test_each_version_comes_once(table: Table) -> None:
    assert table.take().messages == 0
    table.add("c", "d")
    table.add("e")
    assert table.take().messages == 3
    assert table.rows() == "abcde"


def test_a_backlog_comes_in_several_commits_and_goes_on_after_each(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 1)
    for name in "cde":
        table.add(name)

    def refuse() -> None:
        raise RefusedError("enough")

    store_of(table.opened).before_commit += [lambda: None, refuse]
    with pytest.raises(RefusedError, match="enough"):
        table.take()
    table.table.optimize.compact()
    table.add("f")
    store_of(table.opened).before_commit.clear()
    assert table.take().batches == 3
    assert table.rows() == "abcdef"


def test_compaction_and_deletion_bring_no_row_twice_and_lose_none(table: Table) -> None:
    table.add("c")
    table.table.optimize.compact()
    assert table.take().messages == 1, "c is read from the version before"
    table.table.delete("payload = 'a'")
    table.add("d")
    assert table.take().messages == 1
    table.table.delete()
    table.add("e")
    assert table.take().messages == 1
    assert table.rows() == "abcde"
    table.table.restore(0)
    assert table.take().messages == 0
    assert table.rows() == "abcde"


def test_rows_that_are_deleted_before_they_come_do_not_come(table: Table) -> None:
    table.add("c", "d")
    table.table.delete("payload = 'c'")
    assert table.take().messages == 1
    assert table.rows() == "abd"


def test_a_rewrite_is_refused_and_gone_past_by_its_version(table: Table) -> None:
    table.table.update({"payload": "'x'"}, predicate="payload = 'a'")
    table.add("c")
    with pytest.raises(RefusedError) as refused:
        table.take()
    assert str(refused.value).startswith(f"{table.place}: version 2 (UPDATE by delta-rs:py-")
    assert str(refused.value).endswith(
        ") rewrites rows that were taken: it is unclear which rows of the 1 file that it added are new (--skip 2 "
        "continues without those, --take 2 takes all of them); nothing was read; run once with the option that is right"
    )
    assert table.rows() == "ab"
    assert table.take(skip="2").messages == 1
    write_deltalake(table.place, pa.table({"payload": ["y", "z"]}), mode="overwrite")
    with pytest.raises(RefusedError, match=r"version 4 \(WRITE by .* --take 4 takes all of them"):
        table.take()
    assert table.take(take="4").messages == 2
    assert table.take().messages == 0
    assert table.rows() == "abcyz"


def test_entries_that_are_gone_leave_only_what_was_seen_sure(table: Table) -> None:
    table.table.optimize.compact()
    table.add("c")
    table.table.create_checkpoint()
    for entry in sorted((table.place / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    with pytest.raises(RefusedError) as refused:
        table.take()
    assert str(refused.value) == (
        f"{table.place}: its log no longer has the entries of some versions between 1, up to which it was taken, and 3 "
        "(they were cleaned up), so that it is unclear whether the rows of 2 files are new or rewritten; nothing "
        "was read; run once with --take 3 to take all of them as new, or --skip 3 to count them as taken, and run more "
        "often than delta.logRetentionDuration"
    )
    assert table.take(skip="3").messages == 0
    table.add("d")
    assert table.take().messages == 1
    assert table.rows() == "abd"


def test_a_log_that_was_cleaned_up_to_what_is_known_is_gone_on_with(table: Table) -> None:
    table.table.create_checkpoint()
    for entry in sorted((table.place / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    table.add("c")
    assert table.take().messages == 1


def test_a_table_that_was_made_anew_is_another_one(table: Table) -> None:
    shutil.rmtree(table.place)
    table.add("n")
    table.add("o")
    with pytest.raises(
        RefusedError, match="this is not the table that was taken before: it was recreated, or"
    ):
        table.take()
    assert table.take(take="table").messages == 2
    shutil.rmtree(table.place)
    table.add("p")
    assert table.take(skip="table").messages == 0
    table.add("q")
    assert table.take().messages == 1
    assert table.rows() == "abnoq"


def test_a_column_may_be_added_and_none_may_change(table: Table) -> None:
    more = pa.table({"payload": ["c"], "extra": [1]})
    write_deltalake(table.place, more, mode="append", schema_mode="merge")
    assert table.take().messages == 1
    other = pa.table({"payload": ["d"], "extra": ["1"]})
    write_deltalake(table.place, other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(
        RefusedError, match="the column extra was long and is string since the source"
    ):
        table.take(take="3")
    assert table.take(take="3 columns").messages == 1


def test_an_entry_that_cannot_be_read_is_named(table: Table) -> None:
    table.add("c")
    entry = table.place / "_delta_log" / f"{2:020d}.json"
    entry.write_text('{"add": {"path"')
    with pytest.raises(
        DamagedError, match=f"{entry}: this entry of the source's log cannot be read"
    ):
        table.take()


def test_a_source_has_one_name_however_it_is_written(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.place.parent)
    for way in (f"{table.place}/", "table", "./x/../table", f"file://{table.place}"):
        done = ingest(table.opened, TableSource(way))
        assert (done.messages, done.source) == (0, str(table.place))


def test_a_source_that_was_moved_or_copied_is_refused_until_somebody_decides(
    table: Table, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    table.place.rename(elsewhere)
    table.place = elsewhere
    table.add("c")
    with pytest.raises(RefusedError) as refused:
        table.take()
    assert str(refused.value) == (
        f"{elsewhere} has the rows that were taken as {tmp_path / 'table'}: it was moved or copied; nothing was read, "
        "so that no row is taken twice; run once with --skip table to continue after the rows taken there, or --take "
        "table to take all of its rows as new"
    )
    assert table.take(skip="table").messages == 1
    assert table.take().messages == 0
    assert table.rows() == "abc"
    lines, moved = tmp_path / "lines", tmp_path / "moved"
    lines.mkdir()
    (lines / "x.json").write_text("x\n")
    assert ingest(table.opened, TableSource(str(lines), "json")).messages == 1
    shutil.copytree(lines, moved)
    with pytest.raises(
        RefusedError, match=r"moved has the rows that were taken as .*lines: it was moved or copied"
    ):
        ingest(table.opened, TableSource(str(moved), "json"))
    assert (
        ingest(table.opened, TableSource(str(moved), "json", take=frozenset(["table"]))).messages
        == 1
    )


def test_another_format_than_before_is_refused(table: Table, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="was taken as a Delta table before, not as parquet"):
        ingest(table.opened, TableSource(str(table.place), "parquet"))
    with pytest.raises(
        UsageError, match="xml: no such format of a source; there are delta, parquet"
    ):
        ingest(table.opened, TableSource(str(table.place), "xml"))
    write_deltalake(tmp_path / "other", pa.table({"payload": ["x"]}))
    with pytest.raises(UsageError, match="is a Delta table, and some of its files may have rows"):
        ingest(table.opened, TableSource(str(tmp_path / "other"), "parquet"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.json").write_text("1\n")
    assert ingest(table.opened, TableSource(str(tmp_path / "files"), "json")).messages == 1
    with pytest.raises(RefusedError, match="was taken as json before; nothing was read; give"):
        ingest(table.opened, TableSource(str(tmp_path / "files"), "csv"))
    write_deltalake(tmp_path / "files", pa.table({"payload": ["x"]}))
    with pytest.raises(RefusedError, match="was taken as a directory before, not as delta"):
        ingest(table.opened, TableSource(str(tmp_path / "files")))


@pytest.mark.parametrize(("stream", "format_", "new"), [("FILES", "json", 1), ("LOG", "delta", 1)])
def test_what_an_earlier_release_took_by_a_streaming_query_does_not_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, format_: str, new: int
) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    for log in tmp_path.glob("streams/*/_retention/ingest/*/sources/0/*"):
        log.write_text(log.read_text().replace(WRITTEN_AT, str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    opened = open_warehouse(str(tmp_path / "retention.yaml")).stream(stream).opened
    source = TableSource(str(tmp_path / stream.lower()), format_)
    before = opened.store.inventory(opened.store.snapshot()).files["messages"].to_pylist()
    for _ in range(2):
        assert ingest(opened, source).messages == 0
    shutil.rmtree(next(tmp_path.glob(f"streams/{stream}/_retention/ingest/*/offsets")))
    if format_ == "delta":
        write_deltalake(
            source.location, pa.table({"subject": ["s.new"], "payload": ["new"]}), mode="append"
        )
    else:
        (tmp_path / "files" / "code=011").mkdir()
        (tmp_path / "files" / "code=011" / "old.json").write_text("x\n")
    assert ingest(opened, source).messages == new
    after = opened.store.inventory(opened.store.snapshot()).files["messages"].to_pylist()
    assert sum(after) == sum(before) + new


def test_a_checkpoint_that_does_not_tell_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    opened = open_warehouse(str(tmp_path / "retention.yaml")).stream("LOG").opened
    offset = tmp_path / "streams/LOG/_retention/ingest/log/offsets/1"
    whole = offset.read_text()
    offset.write_text(whole.replace('"index":-1', '"index":4'))
    with pytest.raises(
        RefusedError, match="stopped in the middle of version 6 of the source, and its checkpoint"
    ):
        ingest(opened, TableSource("log"))
    offset.unlink()
    with pytest.raises(RefusedError, match="does not show what batch 1 took"):
        ingest(opened, TableSource("log"))
    offset.write_text(whole.replace("272c8c6e", "00000000"))
    with pytest.raises(RefusedError, match="this is not the table that was taken before"):
        ingest(opened, TableSource("log"))


def test_nothing_new_asks_for_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, source = opened_stream(tmp_path), TableSource(str(tmp_path / "files"), "json")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.json").write_text("1\n")
    ingest(opened, source)
    monkeypatch.undo()

    def refuse(_: str) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(session, "session", refuse)
    assert ingest(opened, source).messages == 0
    with pytest.raises(UsageError, match="there is no such directory; nothing was read"):
        ingest(opened, TableSource(str(tmp_path / "none"), "json"))
