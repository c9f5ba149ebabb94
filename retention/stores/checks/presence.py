"""Traces of an earlier table: a missing log does not prove that a stream never had one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from retention.errors import DamagedError
from retention.storage import files
from retention.stores.delta import internals
from retention.stores.layout import FormatRecord, Layout, is_ours

_BEHIND_THE_TABLE = ("_retention/reports/", "_retention/log/")
"""Directories that remain empty until the table is created."""


def refuse_lost(layout: Layout, record: FormatRecord | None, is_made: Callable[[], bool]) -> None:
    """Refuse a stream with a lost log, because a new table would reuse its sequences and batches.

    Args:
        layout: the layout of a stream without a table.
        record: the result of `check_format` before the table was looked for.
        is_made: looks for the table again: another process may have created it and written to it meanwhile.

    Raises:
        DamagedError: a trace of an earlier table exists.
    """
    trace = _trace(layout, record)
    if trace is None or is_made():
        return
    raise DamagedError(
        f"{layout.root}: the log of stream {layout.stream} is gone: {trace}, and there is no entry in "
        f"{_log_of(layout, record)}; a new table would give out sequences and take batches again, so nothing was "
        f"changed; restore that directory from a copy, or move {layout.root} away to begin anew, behind the sequences "
        "that the run history knows: those given out since its last run come again"
    )


def _trace(layout: Layout, record: FormatRecord | None) -> str | None:
    """A trace of an earlier table, in words; None if there is none."""
    if record is not None and record.made:
        return f"{layout.engine_path('format.json')} says that its table was made"
    return next((f"{place} is there" for place in _places(layout) if _tells(place, layout)), None)


def _places(layout: Layout) -> Iterator[str]:
    """The stream's files; a local walk does not follow `messages` if it is a link."""
    roots = [layout.root] if files.is_remote(layout.root) else [layout.root, layout.messages]
    return (files.join(root, path) for root in roots for path in files.walk(root))


def _tells(place: str, layout: Layout) -> bool:
    path = place.removeprefix(f"{layout.root}/")
    name = path.rpartition("/")[2]
    if name.startswith("."):
        return False
    return (
        internals.is_checkpoint(layout.messages, place)
        or path.startswith(_BEHIND_THE_TABLE)
        or is_ours(path)
    )


def _log_of(layout: Layout, record: FormatRecord | None) -> str:
    return " or ".join(layout.logs.values()) if record is None else layout.logs[record.format]
