"""Erasures as text: what one would change, what it has done, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from retention.core.spoken_commands import command
from retention.core.units import format_size
from retention.core.wording import counted
from retention.delta.log_files import log_directory
from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.apply.erase import ErasurePlan
    from retention.erasure.record import ErasureRecord
    from retention.erasure.report import ErasureReport
    from retention.tables.erase import TableErasurePlan

_MOST_TRACES = 20


def erasure_plan_text(plan: ErasurePlan) -> Iterator[str]:
    """The changes that an erasure would make."""
    yield f"{plan.stream}: would erase {counted(plan.messages, 'live message')}, which cannot be undone"
    yield f"  live files: rewrites {plan.rewritten_files:,}, deletes {plan.dropped_files:,}"
    size = f" ({format_size(plan.dead_bytes)})" if plan.dead_bytes else ""
    yield f"  removed and abandoned files: deletes {plan.dead_files:,}{size}"
    if plan.archived_files:
        archived = format_size(plan.archived_bytes)
        yield f"  files of archives: replaces or deletes {plan.archived_files:,} ({archived})"
    for sentence in plan.unreached:
        yield f"  {sentence}; until then the erasure is unfinished"
    for run in plan.lost_undos:
        yield f"  run {run} can no longer be undone: a file that it removed is deleted"


def table_erasure_plan_text(plan: TableErasurePlan) -> Iterator[str]:
    """The changes that an erasure of rows would make."""
    yield f"{plan.table}: would erase {counted(plan.rows, 'live row')}, which cannot be undone"
    yield f"  live files: rewrites {plan.rewritten_files:,}, drops {plan.dropped_files:,}"
    if plan.own_files:
        yield f"  files that earlier runs wrote: deletes {plan.own_files:,}"
    for run in plan.lost_undos:
        yield f"  run {run} can no longer be undone"
    if plan.owners_files:
        yield (
            f"  {counted(plan.owners_files, 'file')} of older versions then has to be deleted by the table's owner"
        )


def erasure_text(report: ErasureReport) -> Iterator[str]:
    """The result of an erasure."""
    record = report.record
    state = "done" if report.is_done else "unfinished"
    unit = "live message" if report.location is None else "live row"
    messages = counted(report.removed_messages, unit)
    replayed = ", replayed from the ledger" if record.replayed else ""
    yield f"{report.stream}: erasure {record.id} is {state}{replayed}: erased {messages}"
    if report.run is not None:
        yield f"  run {report.run}"
    if record.former:
        yield f"  files of older versions with such rows: {len(record.former):,}"
    size = format_size(sum(file.bytes for file in record.deleted))
    yield f"  deleted {counted(len(record.deleted), 'file')} ({size})"
    if record.archived:
        size = format_size(sum(file.bytes for file in record.archived))
        yield f"  replaced or deleted {counted(len(record.archived), 'file')} of archives ({size})"
    for place in record.without:
        yield f"  {place}: this archive no longer exists, as was said; it was not searched"
    for run in record.lost_undos:
        yield f"  run {run} can no longer be undone"
    yield from _search_text(report)


def _search_text(report: ErasureReport) -> Iterator[str]:
    if report.searched_files:
        yield f"  searched {counted(report.searched_files, 'file')}: " + _result(report.traces)
    if report.not_searched:
        yield f"  {counted(report.not_searched, 'value')} of fewer than 12 bytes cannot be searched for"
    if report.shared:
        yield f"  {counted(report.shared, 'value')} of other messages, which stay, were not searched for"
    yield from _left_text(report)


def _left_text(report: ErasureReport) -> Iterator[str]:
    """The places that have something, may have, or could not be searched."""
    for location in report.undecodable[:_MOST_TRACES]:
        yield f"  {location}: cannot be decoded, so only its bytes as stored were searched"
    for location in report.vanished[:_MOST_TRACES]:
        yield f"  {location}: deleted before it was searched"
    for trace in report.traces[:_MOST_TRACES]:
        if trace.what == "row":
            yield f"  {trace.location}: has rows of the erasure"
            continue
        yield f"  {trace.location}: {trace.what} ({trace.encoding}, {trace.view} at {trace.offset:,})"
    yield from (f"  {sentence}" for sentence in report.record.unreached[:_MOST_TRACES])
    yield from (
        f"  {location}: has to be readable for the erasure to end; restore, repair or delete it"
        for location in report.record.unread[:_MOST_TRACES]
    )
    if report.location is not None:
        yield from _owners_text(report, report.location)
    for sentence in report.record.beyond:
        yield f"  beyond reach: {sentence}"
    if not report.record.is_clean:
        again = command("erase", report.stream, options="--resume")
        what = "stream" if report.location is None else "table"
        do = "change or delete these files, then " if report.record.traces else ""
        yield f"  {do}run {again}, or any other maintenance of the {what}"


def _owners_text(report: ErasureReport, location: str) -> Iterator[str]:
    """The commands with which the owner of a table removes what is left of older versions."""
    inside = [each.location for each in report.traces if each.location.startswith(f"{location}/")]
    in_log = [each for each in inside if each.startswith(f"{log_directory(location)}/")]
    named = location.replace("`", "``")
    if len(in_log) < len(inside):
        yield "  the table's owner deletes files of older versions, when no reader needs them, in Spark SQL:"
        yield "    SET spark.databricks.delta.retentionDurationCheck.enabled = false;"
        yield f"    VACUUM delta.`{named}` RETAIN 0 HOURS;"
        yield f"    REORG TABLE delta.`{named}` APPLY (PURGE); -- only if a file is live; then VACUUM again"
    if in_log:
        yield "  and older entries and checkpoints of the log, in Python with deltalake:"
        yield f"    t = deltalake.DeltaTable({location!r})"
        yield '    now = "interval 0 seconds"  # before this, note the two properties, to set them back after it'
        yield "    t.alter.set_table_properties("
        yield '        {"delta.logRetentionDuration": now, "delta.deletedFileRetentionDuration": now})'
        yield "    t.create_checkpoint(); t.cleanup_metadata()"
    if any("/_sidecars/" in each for each in in_log):
        yield "  it leaves sidecars: after it, delete the files listed in _sidecars, and the checkpoints that name them"


def unfinished_clause(records: Sequence[ErasureRecord]) -> str:
    """The clause for unfinished erasures, for a state; empty for none."""
    instants = [record.by_ns for record in records if record.by_ns is not None]
    by = f", due by {brief_instant(min(instants))}" if instants else ""
    return f"; {counted(len(records), 'unfinished erasure')}{by}" if records else ""


def erasure_row(stream: str, record: ErasureRecord) -> tuple[str, ...]:
    """The columns of an erasure in a list."""
    by = "" if record.by_ns is None else brief_instant(record.by_ns)
    return stream, record.id, record.state, brief_instant(record.at_ns), by, _left(record)


def _left(record: ErasureRecord) -> str:
    if record.is_done:
        return ""
    if record.traces:
        return f"found in {counted(len(record.traces), 'place')}"
    if record.unread:
        return f"{counted(len(record.unread), 'file')} cannot be read"
    if record.unreached:
        return f"{counted(len(record.unreached), 'archive')} out of reach"
    return "not carried out to its end"


def _result(traces: Sequence[object]) -> str:
    return f"found in {counted(len(traces), 'place')}" if traces else "found nothing"
