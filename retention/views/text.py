"""Plans, reports, explanations and states as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retention.core.dropped import StreamDrop
from retention.core.units import format_size
from retention.core.wording import counted
from retention.views.text_clock import ahead_text
from retention.views.text_dropped import dropped_clause, dropped_text
from retention.views.text_erase import unfinished_clause
from retention.views.text_forecast import due_text, plan_due_text
from retention.views.text_guards import guards_text, lowered_text, passed_guards_text
from retention.views.text_hold import expired_text, holds_clause, kept_text
from retention.views.text_overdue import overdue_text
from retention.views.text_pause import pause_clause
from retention.views.text_protected import protected_text
from retention.views.text_topic import topic_text
from retention.views.wording import bounds_text, brief_duration, brief_instant, counted_bounds

if TYPE_CHECKING:
    from retention.history.report import RunReport
    from retention.inspect.state import BucketState, State
    from retention.plan.estimate_bounds import Estimate
    from retention.plan.explanation import Explanation
    from retention.plan.plan import Plan
    from retention.rules.requests import Request

MOST_GROUPS = 12
"""The maximum number of lines about segments that a plan shows before it sums up the rest."""


def plan_text(plan: Plan) -> list[str]:
    """The lines of a plan: the messages to remove, by which rule, from which segments, and why."""
    from retention.views.segment_groups import groups_of

    gone = [pin.consumer for pin in plan.pins.expired]
    lines = [f"{plan.header.stream}: {plan_headline(plan)}", *_deleted("would delete", gone)]
    notes = [f"  {text}" for text in plan_notes(plan)]
    if plan.is_empty:
        return [*lines, *dropped_text(plan.dropped), *notes]
    groups = groups_of(plan)
    lines += [f"  {group.line}" for group in groups[:MOST_GROUPS]]
    rest = groups[MOST_GROUPS:]
    if rest:
        removed = sum(group.removed for group in rest)
        lines.append(
            f"  and {len(rest):,} more groups of segments: remove {counted(removed, 'message')}"
        )
    place = plan.header.policy.archive
    first = [f"  removed messages are copied to {place} first"] if place is not None else []
    return [*lines, f"  {segments_text(plan.header.segments.__dict__)}", *first, *notes]


def plan_notes(plan: Plan) -> list[str]:
    """The sentences beside a plan's removals: its forecast, kept messages, and refusals by guards."""
    overdue = None if plan.overdue is None else plan.overdue.as_json()
    texts = [
        plan_due_text(plan),
        *protected_text(plan.held_as_json),
        overdue_text(overdue),
        *ahead_text(plan.header.stream, plan.ahead),
        *lowered_text(plan.lowered),
        *guards_text(plan.guards),
        *kept_text(plan.kept_by_holds),
    ]
    return [text for text in texts if text]


def brief_plan_text(plan: Plan) -> list[str]:
    """The lines of a plan; if it removes nothing, without its forecast, so that such plans are identical."""
    lines = plan_text(plan)
    forecast = plan_due_text(plan)
    return [line for line in lines if not (plan.is_empty and line == f"  {forecast}")]


def plan_headline(plan: Plan) -> str:
    """The sum of a plan in one sentence."""
    instant = brief_instant(plan.header.as_of_ns)
    if plan.header.request is not None:
        return _request_headline(plan, plan.header.request)
    if plan.is_empty:
        return f"nothing to remove as of {instant}"
    rules = ", ".join(f"{number:,} by {rule}" for rule, number in plan.by_rule.items())
    removed = counted(plan.removed_messages, "message")
    size = format_size(plan.removed_bytes)
    marked = _marked("write", plan.actions.markers.num_rows)
    return f"would remove {removed} ({size}) as of {instant}: {rules}{marked}"


def _marked(verb: str, markers: int) -> str:
    """The clause for the delete markers that a run writes; empty for none."""
    return f"; {verb} {counted(markers, 'delete marker')}" if markers else ""


def _request_headline(plan: Plan, request: Request) -> str:
    from retention.rules.requests import Drop

    next_seq = (
        ""
        if plan.actions.sequences is None
        else f"; the next message gets sequence {plan.actions.sequences[1]:,}"
    )
    if isinstance(request, Drop):
        next_seq = "; the next write begins a new table"
    elif plan.header.begins_epoch:
        next_seq = "; offsets begin at 0 again, and no stored offset remains"
    if not plan.removed_messages:
        is_held = any((plan.kept_by_holds or {}).values())
        why = "legal holds keep every message that matches" if is_held else "no message matches"
        return f"nothing to remove: {request.wording}: {why}{next_seq}"
    removed = counted(plan.removed_messages, "message")
    return (
        f"would remove {removed} ({format_size(plan.removed_bytes)}): {request.wording}{next_seq}"
    )


def report_text(report: RunReport) -> list[str]:
    """The lines of a run's report."""
    if report.is_left:
        return [f"{report.stream}: left for the next run"]
    gone = _deleted("deleted", report.deleted_consumers)
    notes = [f"  {text}" for text in report_notes(report)]
    if not report.removed_messages:
        instant = brief_instant(report.as_of_ns)
        at = dropped_text(None if report.dropped is None else StreamDrop(**report.dropped))
        return [f"{report.stream}: removed nothing as of {instant}", *gone, *notes, *at]
    rules = ", ".join(f"{number:,} by {rule}" for rule, number in report.by_rule.items())
    removed = counted(report.removed_messages, "message")
    written = f", wrote {format_size(report.bytes_written)}" if report.bytes_written else ""
    return [
        f"{report.stream}: removed {removed} ({format_size(report.removed_bytes)}): {rules}"
        f"{_marked('wrote', report.markers)}",
        *gone,
        f"  {segments_text(report.segments)}; read {counted(report.files_read, 'file')}{written}; "
        f"{report.seconds:.2f} s",
        f"  run {report.run}",
        *_archived(report),
        *notes,
    ]


def report_notes(report: RunReport) -> list[str]:
    """The sentences beside a run's removals: kept messages, and exceeded guards."""
    texts = [
        *protected_text(report.held),
        overdue_text(report.overdue),
        *passed_guards_text(report),
        *kept_text(report.kept_by_holds),
        *expired_text(report.expired_holds),
    ]
    return [text for text in texts if text]


def _archived(report: RunReport) -> list[str]:
    """The line for the archive that has copies of removed files; empty without one."""
    if report.archived is None:
        return []
    copied = (
        f"{counted(report.archived['files'], 'file')} ({format_size(report.archived['bytes'])})"
    )
    return [f"  copied {copied} first: {report.archived['manifest']}"]


def _deleted(verb: str, consumers: Sequence[str]) -> list[str]:
    """The line for deleted consumers; empty if there are none."""
    names = ", ".join(consumers)
    return [f"  {verb} consumers that were inactive for too long: {names}"] if names else []


def explanation_text(explanation: Explanation) -> list[str]:
    """The lines of an explanation: the sentence, then the arithmetic of the other rules."""
    return [explanation.sentence, *(f"  {line}" for line in other_arithmetic(explanation))]


def other_arithmetic(explanation: Explanation) -> list[str]:
    """The lines of the arithmetic that the sentence does not contain."""
    return [line for line in explanation.arithmetic if line not in explanation.sentence]


def state_text(state: State) -> list[str]:
    """The lines of a stream's state."""
    first, last = state.first_ts_ns, state.last_ts_ns
    held = f"{counted(state.messages, 'message')} ({format_size(state.bytes)})"
    if first is None or last is None:
        empty = f"{state.stream}: empty; the next message gets sequence {state.last_seq + 1:,}"
        return [empty, *dropped_text(state.dropped)]
    return [
        f"{state.stream}: {held}, sequences {state.first_seq:,} to {state.last_seq:,}",
        f"  stored from {brief_instant(first)} to {brief_instant(last)}",
        f"  {counted(state.num_subjects, 'subject')}, {counted(state.segments, 'segment')}; {lag_text(state)}",
        *([f"  {due_text(state.forecast)}"] if state.forecast.due else ()),
        *([f"  {old}"] if (old := state_overdue_text(state)) else ()),
        *(f"  {line}" for line in ahead_text(state.stream, state.ahead)),
        *([f"  {bucket_text(state.bucket)}"] if state.bucket else ()),
        *(f"  {line}" for line in (topic_text(state.topic) if state.topic else ())),
    ]


def behind_text(state: State, now_ns: int, most_ns: int) -> str:
    """The sentence for a stream that was behind its policy for longer than a time; empty if it was not.

    A stream whose next pass would be refused counts as behind; one whose passes replay never does.
    """
    if state.lag is None:
        return f"{state.stream}: {lag_text(state)}"
    behind_ns = state.lag.behind_ns(now_ns)
    if behind_ns is None or behind_ns <= most_ns:
        return ""
    return (
        f"{state.stream}: behind its policy for {brief_duration(behind_ns)}, longer than {brief_duration(most_ns)}: "
        f"{lag_text(state)}"
    )


def states_text(states: Sequence[State]) -> str:
    """The sum of many streams in one line."""
    messages = sum(state.messages for state in states)
    size = format_size(sum(state.bytes for state in states))
    behind = sum(state.lag is None or state.lag.messages > 0 for state in states)
    empty = sum(not state.messages for state in states)
    return (
        f"{counted(len(states), 'stream')}, {empty:,} of them empty: {counted(messages, 'message')} ({size}); "
        f"{behind:,} behind their policy"
    )


def state_overdue_text(state: State) -> str:
    """The clause for old messages that a stream still has; empty if there are none."""
    return overdue_text(None if state.overdue is None else state.overdue.as_json())


def bucket_text(bucket: BucketState) -> str:
    """The clause for a key-value bucket: its live and deleted keys."""
    gone = f", {bucket.deletions:,} deleted" if bucket.deletions else ""
    return f"bucket {bucket.name}: {counted(bucket.live_keys, 'live key')}{gone}"


def lag_text(state: State) -> str:
    """The clause for the lag of a stream behind its policy."""
    if state.dropped is not None:
        return dropped_clause(state.dropped)
    if state.owner is not None:
        return f"kept by {state.owner}"
    if state.unlisted:
        return "not listed: nothing is removed"
    lag = f"{_lag_clause(state)}{holds_clause(state.holds)}{unfinished_clause(state.erasures)}"
    if state.missing_erasures:
        lag += f"; {counted(len(state.missing_erasures), 'erasure')} of the ledger to replay"
    return lag if state.paused is None else f"{pause_clause(state.paused)}: {lag}"


def _lag_clause(state: State) -> str:
    if state.lag is None:
        return "a consumer contradicts itself: the next pass is refused and names it"
    if not state.lag.is_known:
        return "lag not known: a pass replays"
    if not state.lag.messages:
        stay = state.overdue is not None and state.overdue.messages_at_least
        return "up to date, except old messages after a younger one" if stay else "up to date"
    size = f" ({format_size(state.lag.bytes)})" if state.lag.bytes else ""
    return f"at least {counted(state.lag.messages, 'message')}{size} to remove"


def segments_text(segments: object) -> str:
    """The numbers of segments dropped, rewritten and kept."""
    counts = dict(segments)  # type: ignore[call-overload]
    return ", ".join(f"{counts[name]:,} {name}" for name in ("dropped", "rewritten", "kept")) + (
        " segments"
    )


def estimate_text(bounds: Estimate) -> list[str]:
    """The lines of an estimate."""
    removed = bounds.removed_messages
    messages = counted_bounds(removed, "message")
    rules = ", ".join(f"{bounds_text(number)} by {rule}" for rule, number in bounds.by_rule.items())
    segments = ", ".join(
        f"{bounds_text(number)} {name}" for name, number in bounds.segments.items()
    )
    opened = counted_bounds(bounds.files_read, "file")
    instant = brief_instant(bounds.as_of_ns)
    if not bounds.removed_messages.upper:
        return [f"{bounds.stream}: nothing to remove as of {instant}"]
    return [
        f"{bounds.stream}: would remove {messages} as of {instant}: {rules}",
        f"  {segments} segments; planning would open {opened}",
    ]
