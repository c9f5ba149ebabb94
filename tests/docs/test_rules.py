"""The examples of the pages on rules, executed, and the pictures drawn from them."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from retention.core.kv import operations
from retention.plots.charts import Strip
from scripts.rule_pictures import (
    PAGES,
    PICTURES,
    charts,
    examples,
    merged,
    mirrored,
    outcome,
    restored,
    table_outcome,
    topic_outcome,
)
from scripts.source_example import FATE, followed, source_rows, table_rows

_TEXT = re.compile(r"<text [^>]*>([^<]+)</text>")


@pytest.mark.parametrize(
    "page", ["consumers-release", "consumers-hold", "publish-and-import", "key-values"]
)
def test_messages_have_the_fates_of_their_table(page: str, tmp_path: Path) -> None:
    example = examples(page)[0]
    assert outcome(example, tmp_path) == example.column(FATE)


def test_segments_of_a_topic_have_the_fates_of_their_table(tmp_path: Path) -> None:
    [example, *_] = examples("topics")
    assert topic_outcome(example, tmp_path) == example.column(FATE)


def test_rows_of_a_table_have_the_fates_of_their_table(tmp_path: Path) -> None:
    [*tables] = examples("tables")
    assert len(tables) == 3
    for number, example in enumerate(tables):
        (tmp_path / f"{number}").mkdir()
        assert table_outcome(example, tmp_path / f"{number}") == example.column(FATE)


def test_an_archive_restores_what_its_table_says(tmp_path: Path) -> None:
    [example] = examples("archives")
    both = example.column("after apply"), example.column("after restore")
    assert restored(example, tmp_path) == both


def test_a_mirror_and_a_source_have_the_messages_of_their_table(tmp_path: Path) -> None:
    [example] = examples("mirrors")
    assert mirrored(example, tmp_path) == {name: example.column(name) for name in example.rows[0]}


def test_files_are_merged_as_their_table_says(tmp_path: Path) -> None:
    text = (PAGES / "compaction.md").read_text(encoding="utf-8")
    rows = [*table_rows(text[text.index("| files of a segment |") :].split("\n\n")[0])]
    assert len(rows) == 4
    for number, row in enumerate(rows):
        files, words = row["files of a segment"], row["merged"].split(":")[0]
        count = {"all": len(files.split(", ")), "none": 0, "the last 3": 3}[words]
        assert merged(files, tmp_path / f"{number}")[0] == count, row


def test_files_of_a_source_are_taken_as_their_table_says(tmp_path: Path) -> None:
    rows = source_rows(PAGES / "sources.md")
    assert len(rows) == 6
    assert followed(rows, tmp_path) == [row[FATE] for row in rows]


def test_headers_of_a_bucket_mean_the_operations_of_their_table() -> None:
    [example] = examples("key-values")
    lines = [header.strip("`") for header in example.column("header")]
    blocks = [f"NATS/1.0\r\n{line}\r\n\r\n".encode() if line else None for line in lines]
    assert operations(pa.array(blocks, pa.binary())).to_pylist() == example.column("operation")


def test_the_pictures_have_the_messages_and_fates_of_their_pages(tmp_path: Path) -> None:
    drawn = {path.stem for path in PICTURES.glob("*.svg")}
    for name, chart in charts(tmp_path):
        texts = _TEXT.findall((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
        for strip in chart.parts:
            assert isinstance(strip, Strip)
            for box in strip.boxes:
                for text in (box.name, *filter(None, box.lines), box.word):
                    texts.remove(text)
        assert {key for key in texts if key in chart.keys} == {*chart.keys}, name
        drawn.remove(name)
    assert not drawn
