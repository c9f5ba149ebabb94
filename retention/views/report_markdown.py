"""The report of a warehouse as Markdown for pull requests and chats: a table, worst first, and commands to undo."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retention.core.units import format_size
from retention.core.wording import counted
from retention.inspect.log_report import Overview
from retention.plots.wording import short_name
from retention.storage.outputs import OutputKind, begins
from retention.views.report_page import WarehouseReport, lag_of, removed_by
from retention.views.wording import brief_instant

MARKDOWN_FILE = OutputKind("a report as Markdown", begins(r"## Retention of "))
_MOST_ROWS = 30
_MOST_UNDOS = 10
_LONGEST = 60
_MARKUP = re.compile(r"([\\`*\[\]<>#|~!&])")


def report_markdown(report: WarehouseReport) -> Iterator[str]:
    """The lines of a report."""
    yield f"## {_plain(report.title)}"
    yield ""
    yield _plain(f"{report.headline}, as of {brief_instant(report.as_of_ns)}.")
    if report.summary:
        yield ""
        yield _plain(report.summary)
    shown = report.overviews[:_MOST_ROWS]
    if shown:
        yield ""
        yield "| name | stored | size | behind | last pass removed |"
        yield "|---|---:|---:|---:|---|"
        yield from map(_row, shown)
    if len(report.overviews) > len(shown):
        yield ""
        rest = len(report.overviews) - len(shown)
        yield f"{rest:,} more are less urgent: `retention state` lists all."
    offers = [offer for section in report.sections for offer in section.report.undos[:1]]
    if offers:
        yield ""
        yield "Undo:"
        yield ""
        yield "```"
        yield from (f"retention undo {offer.run}" for offer in offers[:_MOST_UNDOS])
        yield "```"


def _row(each: Overview) -> str:
    named = _code(short_name(each.name, _LONGEST))
    if each.error:
        return f"| {named} | | | | **failed**: {_plain(short_name(each.error, 300))} |"
    last = "no pass yet"
    if each.last is not None:
        last = f"{removed_by(each.last) or 'nothing'} ({brief_instant(each.last.record.as_of_ns)})"
    cells = (counted(each.amount, each.noun), format_size(each.bytes), lag_of(each), _plain(last))
    return f"| {' | '.join((named, *cells))} |"


def _plain(content: str) -> str:
    """Text without markup, in one line."""
    return _MARKUP.sub(r"\\\1", short_name(content, 2_000))


def _code(content: str) -> str:
    """A name between backticks, where no character is markup and no one is mentioned."""
    ticks = "`" * (max(map(len, re.findall("`+", content)), default=0) + 1)
    space = " " if content.startswith("`") or content.endswith("`") else ""
    inside = content.replace("|", "\\|")
    return f"{ticks}{space}{inside}{space}{ticks}"
