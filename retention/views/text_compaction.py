"""Plans and reports of compactions as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from retention.core.units import format_size
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.history.compaction_report import CompactionReport
    from retention.plan.compaction import CompactionPlan, Merge

_MOST_MERGES = 20


def compaction_plan_text(plan: CompactionPlan) -> Iterator[str]:
    """The merges that a compaction would make, best first, with the reason and saving of each."""
    if not plan.merges:
        yield f"{plan.stream}: nothing to merge in {counted(plan.files, 'file')}"
    else:
        yield (
            f"{plan.stream}: {counted(len(plan.merges), 'merge')} would save {counted(plan.files_saved, 'file')} of "
            f"{plan.files:,}, rewriting {format_size(plan.bytes_rewritten)}"
        )
    for merge in plan.merges[:_MOST_MERGES]:
        yield f"  {_merge_text(merge)}"
    if len(plan.merges) > _MOST_MERGES:
        yield f"  and {counted(len(plan.merges) - _MOST_MERGES, 'more merge')}"


def compaction_text(report: CompactionReport) -> Iterator[str]:
    """The work of a compaction."""
    rest = f"; {counted(report.pending, 'merge')} left for the next run" if report.pending else ""
    if not report.merges:
        yield f"{report.stream}: merged nothing{rest}"
    else:
        yield (
            f"{report.stream}: merged {counted(report.files_before, 'file')} into {report.files_after:,}; "
            f"read {format_size(report.bytes_read)}, wrote {format_size(report.bytes_written)}{rest}"
        )
        yield f"  {counted(len(report.runs), 'run')}, {report.runs[0]} first{_so_far(report)}; {report.seconds:.2f} s"


def _so_far(report: CompactionReport) -> str:
    """The number of writes per byte of the stream, by this compaction and all before."""
    if report.amplification is None:
        return ""
    return f"; compacted data was written {report.amplification:.1f} times so far"


def _merge_text(merge: Merge) -> str:
    where = f"segment {merge.segment:,}"
    if merge.partition:
        where = f"partition {merge.partition}, {where}"
    rewritten = format_size(merge.bytes_rewritten)
    if merge.reason == "hollow_segments":
        what = f"{counted(merge.segments, 'hollow segment')} become one"
    elif merge.reason == "small_segments":
        what = f"{counted(merge.segments, 'small segment')} become one"
    elif merge.reason == "dead_rows":
        what = f"{counted(merge.files.num_rows, 'file')} with many dead rows rewritten"
    else:
        about = "" if merge.files_after == 1 else "about "
        what = f"{counted(merge.files.num_rows, 'small file becomes', 'small files become')} {about}{merge.files_after}"
    return f"{where}: {what} ({rewritten})"
