"""The command that writes a page to hand on: report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import AsOf, Streams, Tags
from retention.cli.output import chosen_with_tables, finish, put_lines
from retention.cli.settings import settings_of
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.views.notebook_report import ShownWarehouseReport


@app.command()
def report(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page with pictures.")
    ] = None,
    markdown: Annotated[
        str | None,
        typer.Option("--markdown", metavar="FILE", help="Write Markdown. Default: print it."),
    ] = None,
    as_of: AsOf = None,
) -> None:
    """Report the health of streams and tables to hand on: a page, or Markdown; change nothing."""
    settings = settings_of(ctx)
    if settings.format != "table":
        raise UsageError(
            "a report is a page or Markdown: leave out --format; `retention state --format json` has its numbers"
        )
    if html is not None and html == markdown:
        raise UsageError(f"{html}: is named for the page and for Markdown; name two files")
    _check(html, markdown)
    warehouse = settings.open()
    names, tables = chosen_with_tables(warehouse, streams, tags)
    made = warehouse.report([*names, *tables], as_of)
    if not made.outcomes or any(outcome.error is None for outcome in made.outcomes):
        _put(made, html, markdown)
    finish(made.outcomes)


def _check(html: str | None, markdown: str | None) -> None:
    """Refuse files that would replace other content, before the work."""
    from retention.storage.outputs import check_output
    from retention.views.report_markdown import MARKDOWN_FILE
    from retention.views.report_page import PAGE_FILE

    for path, kind in ((html, PAGE_FILE), (markdown, MARKDOWN_FILE)):
        if path is not None:
            check_output(path, kind)


def _put(report: ShownWarehouseReport, html: str | None, markdown: str | None) -> None:
    if html is not None:
        report.save_html(html)
    if markdown is not None:
        report.save_markdown(markdown)
    if html is None and markdown is None:
        put_lines(report.markdown.splitlines())
