"""A look at a table of another owner, as text, as JSON, and as its entry of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from retention.config.list_entry import ListEntry
from retention.config.table_types import format_column
from retention.core.table_policy import Column
from retention.core.units import format_duration, format_instant, format_size
from retention.core.wording import counted
from retention.inspect.adopt import AgeEffect, TableLook
from retention.inspect.time_guess import TimeCandidate


def look_lines(look: TableLook) -> Iterator[str]:
    """Describe a table, and the columns that may have the time of its rows."""
    counted_files = f"{counted(look.files, 'file')}, {format_size(look.bytes)}"
    if not look.has_log:
        yield f"{look.location}: {counted(look.rows, 'row')} in {counted_files}"
        yield (
            "  a directory of Parquet files without a log: only whole files are removed, so a row stays as long as "
            "another in its file; max_age, expires_at, max_rows and max_bytes apply, max_rows_per_key does not"
        )
        for reason, count in look.passed_over:
            yield f"  left out: {counted(count, 'file')} ({reason.replace('_', ' ')})"
    else:
        vectors = f"{counted(look.vectors, 'file has', 'files have')} a deletion vector"
        uncounted = f", and those of {counted(look.uncounted_files, 'file')} without statistics"
        yield (
            f"{look.location} (version {look.version}): {counted(look.rows, 'row')}"
            f"{uncounted if look.uncounted_files else ''} in {counted_files}"
            f"{f'; {vectors}' if look.vectors else ''}"
        )
    yield f"  columns: {', '.join(f'{format_column(path)} {kind}' for path, kind in look.columns)}"
    unit = "files"
    if look.has_log:
        yield f"  features: {', '.join(look.features) or 'none'}"
        unit = "entries"
    writers = (f"{writer} ({unit}: {count})" for writer, count in look.writers)
    yield f"  written by: {', '.join(writers) or 'unknown, because no entry is left'}"
    for time in look.times:
        yield f"  may be the time: {candidate_text(time)}"
    for title, columns in (("key", look.keys), ("expires_at", look.expiries)):
        if columns:
            yield f"  may be {title}: {_names(columns)}"


def candidate_text(time: TimeCandidate) -> str:
    """Describe a candidate: its range, the share of plausible rows, and its trend."""
    kind = time.type if time.unit is None else f"{time.type} in {time.unit}"
    if time.share is None or time.first_ns is None or time.last_ns is None:
        return f"{format_column(time.path)} ({kind}): without statistics"
    trend = (
        "" if time.rising is None else f", {time.rising:.0%} of files begin after the one before"
    )
    return (
        f"{format_column(time.path)} ({kind}): {format_instant(time.first_ns)} to {format_instant(time.last_ns)}, "
        f"{time.share:.0%} of rows in the last ten years and not ahead{trend}"
    )


def effect_line(effect: AgeEffect, look: TableLook) -> str:
    """Describe the effect of a limit of age."""
    if not look.has_log:
        return (
            f"  max_age: {format_duration(effect.max_age_ns)} would remove {counted(effect.whole_files, 'file')} with "
            f"{effect.rows_at_least:,} rows ({format_size(effect.whole_bytes)}, not read), and keep "
            f"{counted(effect.cut_files, 'file')} with younger rows, or without statistics that tell"
        )
    whole = (
        f"{counted(effect.whole_files, 'file')} whole ({format_size(effect.whole_bytes)}, not read)"
    )
    cut = f"rows of {counted(effect.cut_files, 'file')} ({format_size(effect.cut_bytes)} to read)"
    parts = [
        *([whole] if effect.whole_files else []),
        *([cut] if effect.cut_files else []),
    ]
    return (
        f"  max_age: {format_duration(effect.max_age_ns)} would remove {_rows_text(effect)}"
        f"{': ' if parts else ''}{' and '.join(parts)}"
    )


def table_entry(name: str, look: TableLook, time: TimeCandidate) -> ListEntry:
    """The entry of a table: without a limit, so that it removes nothing; comments propose some."""
    values = {"name": name, "location": look.location, "time": format_column(time.path)}
    if not look.has_log:
        values["format"] = look.format
    if time.unit is not None:
        values["unit"] = time.unit
    if time.type == "timestamp_ntz":
        values["zone"] = "UTC"
    comments = [
        *(f"key: {format_column(column)}" for column in look.keys),
        *(f"expires_at: {format_column(column)}" for column in look.expiries),
        "max_age: 90d",
    ]
    return ListEntry("tables", "a table", values, comments)


def adoption_entry(
    name: str, look: TableLook, time: TimeCandidate, effects: Sequence[AgeEffect], place: str
) -> dict[str, Any]:
    """A table's look, the column chosen as its time, and the effect of limits, as JSON values."""
    return {
        "table": name,
        "location": look.location,
        "format": look.format,
        "version": look.version,
        "files": look.files,
        "bytes": look.bytes,
        "rows": look.rows,
        "uncounted_files": look.uncounted_files,
        "vectors": look.vectors,
        "files_passed_over": dict(look.passed_over),
        "features": list(look.features),
        "writers": [{"writer": writer, "entries": count} for writer, count in look.writers],
        "columns": [{"column": format_column(path), "type": kind} for path, kind in look.columns],
        "time": format_column(time.path),
        "times": [_candidate(candidate) for candidate in look.times],
        "keys": [format_column(column) for column in look.keys],
        "expires_at": [format_column(column) for column in look.expiries],
        "limits": [vars(effect) for effect in effects],
        "config": place,
    }


def _rows_text(effect: AgeEffect) -> str:
    least, most = effect.rows_at_least, effect.rows_at_most
    if most == 0:
        return "no row"
    return counted(most, "row") if least == most else f"{least:,} to {most:,} rows"


def _candidate(time: TimeCandidate) -> dict[str, Any]:
    return {**vars(time), "path": format_column(time.path)}


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(map(format_column, columns))
