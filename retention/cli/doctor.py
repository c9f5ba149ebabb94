"""The command that checks a warehouse: doctor."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Streams, Tags
from retention.cli.output import put_json, put_report
from retention.cli.settings import settings_of

if TYPE_CHECKING:
    from retention.doctor.finding import Finding


@app.command()
def doctor(
    ctx: typer.Context,
    streams: Streams = None,
    tags: Tags = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also start Spark as jobs do, and test its workers.")
    ] = False,
) -> None:
    """Check the machine, the warehouse, its streams and tables. Names a remedy for each problem."""
    settings = settings_of(ctx)
    from retention.doctor.examine import examine
    from retention.doctor.finding import exit_code, finding_lines

    kept: list[Finding] = []
    coming = _kept(examine(settings.open, streams or (), tags or ()), kept)
    if spark:
        from retention.doctor.spark import check_spark

        tried = check_spark(lambda: settings.open().location)
        coming = itertools.chain(_kept(tried, kept), coming)
    if settings.format == "table":
        put_report(finding_lines(coming))
    else:
        entries = [finding.as_json() for finding in coming]
        put_json(settings, entries, entries)
    code = exit_code(kept)
    if code:
        raise typer.Exit(code)


def _kept(findings: Iterable[Finding], kept: list[Finding]) -> Iterator[Finding]:
    for finding in findings:
        kept.append(finding)
        yield finding
