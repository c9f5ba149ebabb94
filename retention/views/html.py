"""HTML of plans, reports, explanations and states for notebooks: self-contained, with inline style only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from retention.core.display import readable_instant
from retention.core.markup import card, escape, muted, table
from retention.core.units import format_size
from retention.core.wording import counted
from retention.history.report import RunReport
from retention.inspect.latest import Latest, latest_headline, shown_rows
from retention.inspect.state import State
from retention.inspect.topic_messages import HEAD, TopicMessages, topic_rows
from retention.inspect.topic_stats import TopicStats
from retention.plan.explanation import Explanation
from retention.plan.plan import Plan
from retention.plan.simulation import Simulation
from retention.views.reasons import reason
from retention.views.segment_groups import groups_of
from retention.views.text import (
    MOST_GROUPS,
    bucket_text,
    lag_text,
    other_arithmetic,
    plan_notes,
    report_notes,
    state_overdue_text,
)
from retention.views.text_forecast import due_text
from retention.views.text_guards import guards_text, passed_guards_text
from retention.views.text_simulation import by_rule_text, simulation_text, sizes_text
from retention.views.text_table import files_text, rows_notes
from retention.views.text_topic import (
    PARTITION_HEAD,
    STATS_HEAD,
    partition_rows,
    settings_text,
    stats_rows,
)
from retention.views.wording import bounds_text

if TYPE_CHECKING:
    from retention.tables.plan import TablePlan
    from retention.tables.report import TableReport

_COLOURS = {"dropped": "#d6604d", "rewritten": "#e0a33e", "kept": "#4f9d69"}


def plan_html(plan: Plan) -> str:
    """A plan as HTML: the messages to remove, by which rule, from which segments, and why."""
    aside = f"plan {plan.plan_id[:12]} as of {readable_instant(plan.header.as_of_ns)}"
    parts = [_headline(plan.removed_messages, plan.removed_bytes, "to remove")]
    parts.append(_bar(vars(plan.header.segments)))
    notes = _notes(plan_notes(plan))
    if plan.is_empty:
        return card(plan.header.stream, aside, [*parts, *notes])
    rules = [_rule_row(reason(plan, rule), number) for rule, number in plan.by_rule.items()]
    parts.append(table(("Rule", "Messages", "Why"), rules, numbers={1}))
    groups = groups_of(plan)
    rows = [
        (group.segments, f"{group.removed:,}", f"{group.messages:,}", "; ".join(group.reasons))
        for group in groups[:MOST_GROUPS]
    ]
    rest = groups[MOST_GROUPS:]
    if rest:
        removed = sum(group.removed for group in rest)
        messages = sum(group.messages for group in rest)
        rows.append((f"and {len(rest):,} more", f"{removed:,}", f"{messages:,}", ""))
    parts.append(table(("Where", "Remove", "Of", "Why"), rows, numbers={1, 2}))
    return card(plan.header.stream, aside, [*parts, *notes])


def _rule_row(text: str, number: int) -> tuple[str, str, str]:
    limit, _, why = text.partition(", ")
    return limit, f"{number:,}", why


def report_html(report: RunReport) -> str:
    """The report of a run as HTML."""
    rules = [(rule, f"{number:,}", "") for rule, number in report.by_rule.items()]
    cost = [
        counted(report.files_read, "file") + f" read ({format_size(report.bytes_read)})",
        f"{format_size(report.bytes_written)} written",
        f"{report.seconds:.2f} s",
        f"run {report.run}",
    ]
    parts = [
        _headline(report.removed_messages, report.removed_bytes, "removed"),
        _bar(report.segments),
        table(("Rule", "Messages", ""), rules, numbers={1}) if rules else "",
        muted(" · ".join(cost)),
        *_notes(report_notes(report)),
    ]
    return card(report.stream, f"applied as of {readable_instant(report.as_of_ns)}", parts)


def table_plan_html(plan: TablePlan) -> str:
    """A plan of a table in place as HTML: the rows to remove, by which limit, and from how many files."""
    aside = f"plan {plan.plan_id[:12]} as of {readable_instant(plan.as_of_ns)}"
    notes = [*rows_notes(plan), *guards_text(plan.guards)]
    return card(plan.table, aside, [*_rows_parts(plan, "to remove"), *_notes(notes)])


def table_report_html(report: TableReport) -> str:
    """The report of a pass over a table in place as HTML."""
    plan = report.plan
    cost = [
        counted(plan.files_read, "file") + f" read ({format_size(plan.bytes_read)})",
        f"{format_size(report.bytes_written)} written",
        f"{report.seconds:.2f} s",
        f"run {report.run}",
    ]
    notes = [" · ".join(cost), *rows_notes(plan), *passed_guards_text(report)]
    aside = f"applied as of {readable_instant(plan.as_of_ns)}"
    return card(plan.table, aside, [*_rows_parts(plan, "removed"), *_notes(notes)])


def _rows_parts(plan: TablePlan, verb: str) -> list[str]:
    rules = [(limit, f"{rows:,}", "") for limit, rows in plan.by_limit.items()]
    return [
        _headline(plan.removed_rows, plan.removed_bytes, verb, "row"),
        f"<div>{muted(files_text(plan))}</div>",
        table(("Limit", "Rows", ""), rows=rules, numbers={1}) if rules else "",
    ]


def _notes(texts: Sequence[str]) -> list[str]:
    return [f"<div>{muted(text)}</div>" for text in texts]


def explanation_html(explanation: Explanation) -> str:
    """An explanation as HTML: why one message is kept or removed."""
    fate, colour = ("to remove", "dropped") if explanation.goes else ("kept", "kept")
    fate = "removed" if explanation.removed else fate
    badge = f'<span style="background:{_COLOURS[colour]};color:#fff;border-radius:4px;padding:.1em .5em">{fate}</span>'
    lines = "".join(
        f'<li style="margin:.1em 0">{escape(line)}</li>' for line in other_arithmetic(explanation)
    )
    parts = [
        f'<div style="margin:.3em 0">{badge} {escape(explanation.sentence)}</div>',
        f'<ul style="margin:.3em 0 0;padding-left:1.4em;opacity:.75">{lines}</ul>' if lines else "",
    ]
    return card(f"{explanation.stream} {explanation.seq:,}", explanation.subject or "", parts)


def state_html(state: State) -> str:
    """The state of a stream as HTML."""
    bucket = [("Bucket", bucket_text(state.bucket))] if state.bucket else []
    old = state_overdue_text(state)
    held = [
        ("Sequences", f"{state.first_seq:,} to {state.last_seq:,}" if state.messages else "none"),
        ("Stored", _span(state)),
        ("Subjects", f"{state.num_subjects:,}"),
        *bucket,
        ("Segments", f"{state.segments:,} ({state.format}, version {state.version})"),
        ("Policy", lag_text(state)),
        *([("Due", due_text(state.forecast))] if state.forecast.due else []),
        *([("Old", old)] if old else []),
    ]
    parts = [_headline(state.messages, state.bytes, ""), table((), held, numbers=set())]
    if state.topic is not None:
        rows = partition_rows(state.topic)
        parts += [muted(settings_text(state.topic.settings)), _numbers(PARTITION_HEAD, rows)]
    return card(state.stream, f"next sequence {state.last_seq + 1:,}", parts)


def simulation_html(simulation: Simulation) -> str:
    """A simulation as HTML: the assumption, each policy, and a row for each of its passes."""
    first, assumption = simulation_text(simulation)[:2]
    head = ("Policy", "At", "Keeps", "Size", "Removes")
    rows = [
        (
            policy.name,
            readable_instant(each.at_ns),
            bounds_text(each.kept),
            sizes_text(each.kept_bytes),
            by_rule_text(each.by_rule) if each.removed.upper else "none",
        )
        for policy in simulation.policies
        for each in policy.passes
    ]
    policies = [(policy.name, "; ".join(policy.limits)) for policy in simulation.policies]
    parts = [f"<div>{muted(assumption.strip())}</div>", table((), policies, ())]
    aside = first.removeprefix(f"{simulation.subject}: ")
    return card(simulation.subject, aside, [*parts, table(head, rows, {2, 3})])


def stats_html(stats: TopicStats) -> str:
    """Statistics of topics as HTML."""
    total = stats.rows[0]
    aside = f"{counted(total.partitions, 'partition')}, {counted(total.segments, 'segment')}"
    parts = [_headline(total.messages, total.bytes, ""), _numbers(STATS_HEAD, stats_rows(stats), 2)]
    return card(counted(total.topics, "topic"), aside, parts)


def _numbers(head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 0) -> str:
    """A table of numbers after the first `text` columns, which hold text."""
    titles = [name.capitalize() for name in head]
    return table(titles, rows, numbers=set(range(text, len(head))))


def messages_html(messages: TopicMessages) -> str:
    """Messages of a topic as HTML, with their user headers."""
    rows = list(topic_rows(messages.table))
    return card(
        messages.topic, counted(len(messages), "message"), [table(HEAD, rows, numbers={0, 1, 3})]
    )


def latest_html(latest: Latest) -> str:
    """The newest of the last values as HTML; a last message that deletes its subject is shown as such."""
    rows = [tuple(row.values()) for row in shown_rows(latest)]
    head = ("Subject", "Sequence", "Time", "Operation", "Value")
    return card(latest.stream, latest_headline(latest), [table(head, rows, numbers={1})])


def _span(state: State) -> str:
    if state.first_ts_ns is None or state.last_ts_ns is None:
        return "nothing"
    return f"{readable_instant(state.first_ts_ns)} to {readable_instant(state.last_ts_ns)}"


def _headline(messages: int, size: int, verb: str, unit: str = "message") -> str:
    number, noun = counted(messages, unit).split(" ")
    return (
        f'<div style="margin:.4em 0 .6em"><span style="font-size:1.9em;font-weight:600">{number}</span> '
        f"{noun} ({format_size(size)}) {verb}</div>"
    )


def _bar(segments: Mapping[str, int]) -> str:
    """A bar of the segments dropped, rewritten and kept, to scale."""
    total = sum(segments.values())
    if not total:
        return muted("no segments")
    stripes = "".join(
        f'<div style="flex:{segments[name]} 0 3px;background:{colour}"></div>'
        for name, colour in _COLOURS.items()
        if segments[name]
    )
    legend = " ".join(
        f'<span style="margin-right:1.4em"><span style="color:{colour}">&#9632;</span> '
        f"{segments[name]:,} {name}</span>"
        for name, colour in _COLOURS.items()
    )
    in_all = f"of {counted(total, 'segment')}"
    return (
        f'<div style="display:flex;height:10px;border-radius:5px;overflow:hidden;gap:1px">{stripes}</div>'
        f'<div style="margin:.3em 0 .8em">{legend}{muted(in_all)}</div>'
    )
