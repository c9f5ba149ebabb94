"""The tables of examples in pages, and the files of a source that the page on sources has as one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from retention.ingest.sources.contents import SourceContents, resolve
from retention.ingest.sources.directory import NO_WISHES, SourceFile, compare
from retention.plots.charts import Box, Chart, Strip
from retention.plots.palette import KEPT
from retention.storage.listing import list_files

FATE = "what happens"
Row = Mapping[str, str]


def table_rows(table: str) -> Iterator[Row]:
    """The rows of a Markdown table, by its header."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return (dict(zip(lines[0], line, strict=True)) for line in lines[2:])


def followed(rows: Sequence[Row], source: Path) -> list[str]:
    """The fates of a source's JSON files at its second run: `taken: 2 rows`, `skipped`, or `kept` after a deletion.

    Args:
        rows: a file each, at its first and second run: `3 rows`, `deleted`, `renamed to NAME`, or nothing.
        source: its directory.
    """
    contents = SourceContents(str(source), "json")
    for row in rows:
        _bring(source / row["file"], row["first run"])
    known = {file.path: contents.taken(file) for file in compare(_listed(source), {}).new}
    for row in rows:
        if row["second run"] != row["first run"]:
            _bring(source / row["file"], row["second run"])
    parts = resolve(compare(_listed(source), known), contents, NO_WISHES).parts
    bytes_of = {
        part.file.path: (source / part.file.path).read_bytes()[part.start :] for part in parts
    }
    new = {path: len(lines.splitlines()) for path, lines in bytes_of.items()}

    def fate(row: Row) -> str:
        if row["file"] in new:
            return f"taken: {new[row['file']]} rows"
        return KEPT if row["second run"] == "deleted" else "skipped"

    return [fate(row) for row in rows]


def _bring(file: Path, state: str) -> None:
    words = state.split()
    if "deleted" in words:
        file.unlink()
    elif "renamed" in words:
        file.rename(file.with_name(words[-1]))
    elif words:
        lines = (json.dumps({file.name: number}) for number in range(int(words[0])))
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _listed(source: Path) -> list[SourceFile]:
    files = list_files(str(source))
    return [SourceFile(each.path, each.length, each.modified_ns, "", each.inode) for each in files]


def source_rows(page: Path) -> list[Row]:
    """The files of the example of the page on sources."""
    text = page.read_text(encoding="utf-8")
    return [*table_rows(text[text.index("| file | first run |") :].split("\n\n")[0])]


def source_chart(page: Path) -> Chart:
    """The files of a source at its second run."""

    def box(row: Row) -> Box:
        fate, _, rows = row[FATE].partition(": ")
        second = row["second run"].partition(" to ")[0]
        return Box(row["file"].partition(".")[0], (row["first run"], second), fate, rows or fate)

    return Chart(
        "A source at its second run",
        "Its rows at the first run, at the second, and what happens.",
        (Strip(tuple(map(box, source_rows(page)))),),
    )
