"""The command that merges files: compact."""

# ruff: noqa: FBT002  (typer makes options of parameters)
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from retention.cli.app import app
from retention.cli.arguments import Tags, complete_stream
from retention.cli.output import chosen_streams, finish, put_outcomes, say
from retention.cli.progress import progress
from retention.cli.settings import settings_of
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.history.compaction_report import CompactionReport
    from retention.plan.compaction import CompactionPlan

Compacted = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STREAM",
        show_default=False,
        autocompletion=complete_stream,
        help="Names or patterns. Default: streams with `compact` in the configuration.",
    ),
]


@app.command()
def compact(
    ctx: typer.Context,
    streams: Compacted = None,
    tags: Tags = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-bytes",
            metavar="SIZE",
            help="Rewrite at most this much in all, the best merges first.",
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option("--max-time", metavar="DURATION", help="Start no merge after this time."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Merge the files (without it: a dry run).")
    ] = False,
) -> None:
    """Merge small and hollow files (dry run unless --yes)."""
    settings = settings_of(ctx)
    warehouse = settings.open()
    from retention.apply.compact import CompactionLimits
    from retention.views.json_entries import entry
    from retention.views.text_compaction import compaction_plan_text, compaction_text

    names = chosen_streams(warehouse, streams, tags, warehouse.compacted())
    if not names and warehouse.streams():
        say("no stream has `compact` in its configuration: write `compact: {}`, or name streams")
    limits = CompactionLimits.parsed(max_bytes, max_time)
    if yes:
        with progress(settings, "compacting", len(names), _merged) as watch:
            done = warehouse.compact(names, limits, watch).apply()
        put_outcomes(settings, done, warehouse.clock(), compaction_text, entry)
        finish(done)
        return
    with progress(settings, "planning", len(names), _would_merge) as watch:
        planned = warehouse.compact(names, limits, watch).plan
    put_outcomes(settings, planned, warehouse.clock(), compaction_plan_text, entry)
    finish(planned)


def _merged(report: CompactionReport) -> str:
    return f"compacted, merged {counted(report.files_before, 'file')} into {report.files_after:,}"


def _would_merge(plan: CompactionPlan) -> str:
    return f"planned, would save {plan.files_saved:,} of {counted(plan.files, 'file')}"
