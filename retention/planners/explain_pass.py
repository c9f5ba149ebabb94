"""Explanation of one message of a stream in a pass: its fate by the plan, and the compared numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core import kv
from retention.plan.actions import DROP
from retention.plan.explain_consumers import needs_line, protection_line
from retention.plan.explain_rules import IN_KEPT_SEGMENT, rule_lines, rule_of, sentence
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan
from retention.planners.consumer_protection import missing_consumers
from retention.planners.plan_rows import MessageContext, PlanRows
from retention.rules import RULES
from retention.rules.facts import Facts
from retention.rules.jetstream.evaluate import ORDER
from retention.schemas.messages import RULE_COLUMNS


def explain_message(rows: PlanRows, around: MessageContext) -> Explanation:
    """Explain a message in a file of the plan.

    Args:
        rows: the rows of the plan's files.
        around: the message.

    Raises:
        StalePlanError: the files that the plan was made from are deleted.
        DamagedError: a file is damaged.
    """
    plan, message = rows.plan, around.message
    if plan.header.policy.retention != "limits":
        released, line = needs_line(
            _row(message), plan.header.policy, plan.cause.consumers.interests
        )
        if released:
            return _explain_released(plan, around, line)
    facts = _facts(rows, around)
    goes, rule = _fate(plan, around, facts)
    if not goes and plan.header.policy.whole_segments:
        rule = rule_of(plan.header.policy, facts)
    wording = sentence(plan.header.stream, plan.header.policy, facts, rule, goes=goes)
    return explanation(
        plan.header.stream,
        message,
        rule if goes else None,
        wording,
        rule_lines(plan.header.policy, facts),
    )


def explain_behind(plan: Plan, message: dict[str, object], line: str) -> Explanation:
    """Explain a message in a file unknown to the plan, by the plan's totals and by the message's times.

    Args:
        plan: the plan.
        message: its narrow columns.
        line: why its part of the stream is kept.
    """
    around: dict[str, Any] = {rule.setting.field: None for rule in ORDER if not rule.expires}
    policy = replace(plan.header.policy, **around)
    lines = (line, *rule_lines(policy, _facts_of_message(plan, message)))
    named = f"{plan.header.stream} {message['seq']:,} ({message['subject']})"
    return explanation(
        plan.header.stream, message, None, f"{named} is kept: {'; '.join(lines)}.", lines
    )


def _explain_released(plan: Plan, around: MessageContext, line: str) -> Explanation:
    """Explain a message released by all consumers."""
    message = around.message
    goes, _ = removed_by(plan, around)
    named = f"{plan.header.stream} {message['seq']:,} ({message['subject']})"
    wording = (
        f"{named} is removed: {line}." if goes else f"{named} is kept: {line}{IN_KEPT_SEGMENT}."
    )
    return explanation(
        plan.header.stream,
        message,
        plan.header.policy.retention if goes else None,
        wording,
        (line,),
    )


def _fate(plan: Plan, around: MessageContext, facts: Facts) -> tuple[bool, str | None]:
    """Whether the plan removes a message, and the rule."""
    goes, rules = removed_by(plan, around)
    if len(rules) == 1:
        return goes, rules[0]
    return goes, (rule_of(plan.header.policy, facts) or rules[0]) if goes else None


def removed_by(plan: Plan, around: MessageContext) -> tuple[bool, list[str]]:
    """Whether the plan removes a message, and the candidate rules."""
    path = plan.cause.files["path"][around.number]
    at = pc.index(plan.actions.files["path"], path).as_py()
    if at < 0:
        return False, []
    seq = around.message["seq"]
    if plan.actions.files["action"][at].as_py() != DROP:
        rules = _around(plan.actions.removed.of_file(at), seq)["rule"].to_pylist()
        return len(rules) > 0, [RULES[rule] for rule in rules]
    parts = _around(plan.cause.made_from.parts_of(around.number), seq)["rule"].to_pylist()
    if parts:
        return True, [RULES[parts[0]]]
    # A rule removes a number of messages from a span; its files share them in order, and only counts are known.
    rows = plan.actions.rules.filter(
        pc.is_in(plan.actions.rules["file"], value_set=_span_files(plan, at))
    )
    return True, list(dict.fromkeys(rows["rule"].to_pylist()))


def _span_files(plan: Plan, at: int) -> pa.Array:
    """Row numbers of the plan's files that may share a span with a file: those of its segment."""
    same = pc.and_(
        pc.equal(plan.actions.files["partition"], plan.actions.files["partition"][at]),
        pc.equal(plan.actions.files["segment"], plan.actions.files["segment"][at]),
    )
    return pc.indices_nonzero(same).cast(pa.int64())


def _around(parts: pa.Table, seq: int) -> pa.Table:
    """The part with a sequence: at most one row."""
    return parts.filter(
        pc.and_(pc.less_equal(parts["first_seq"], seq), pc.greater_equal(parts["last_seq"], seq))
    )


def _facts(rows: PlanRows, around: MessageContext) -> Facts:
    """Facts that rules compare, about a message and its neighbours."""
    plan, message = rows.plan, around.message
    partition, seq = message["partition"], message["seq"]
    seqs, later = around.rows["seq"].to_numpy(), plan.cause.made_from.above(partition, seq)
    newer = around.rows.filter(pa.array(seqs > seq))
    messages, size = plan.cause.made_from.remaining_of(later)
    tail = plan.cause.tail
    on_subject = 0
    if plan.header.policy.max_msgs_per_subject is not None:
        on_subject = rows.on_subject(later, message["subject"]) + int(
            pc.sum(pc.equal(newer["subject"], message["subject"]), min_count=0).as_py()
        )
    return replace(
        _facts_of_message(plan, message, _scan_end(rows, partition)),
        newer=newer.num_rows + messages + tail.messages,
        bytes_with_newer=message["size"]
        + int(pc.sum(newer["size"], min_count=0).as_py())
        + size
        + tail.bytes,
        newer_on_subject=on_subject,
        newer_subjects=_newer_subjects(rows, message),
        **_deletion(rows, message),
        needs=_needs(plan, message),
        **_held(plan, message),
    )


def _newer_subjects(rows: PlanRows, message: dict[str, Any]) -> int:
    """The number of subjects with a newer last message than a message's subject, if the policy limits subjects."""
    if rows.plan.header.policy.max_subjects is None:
        return 0
    return rows.subjects_after(message["partition"], rows.last_on_subject(message)["seq"])


def _facts_of_message(plan: Plan, message: dict[str, Any], scan_end: int | None = None) -> Facts:
    """Facts that rules compare, about a message alone."""
    scan_end = plan.cause.scan_end if scan_end is None else scan_end
    markers = plan.actions.markers.filter(
        pc.equal(plan.actions.markers["replaces"], message["seq"])
    )
    stored = markers["seq"].to_pylist()
    return Facts(
        seq=message["seq"],
        subject=message["subject"],
        ts_ns=message["ts_ns"],
        size=message["size"],
        deadline_ns=message["deadline_ns"],
        newer=0,
        bytes_with_newer=message["size"],
        newer_on_subject=0,
        as_of_ns=plan.header.as_of_ns,
        scan_end=scan_end if scan_end is not None and scan_end < message["seq"] else None,
        marker=stored[0] if stored else None,
        refused=message["seq"] in plan.cause.refused,
    )


def _scan_end(rows: PlanRows, partition: int) -> int | None:
    """The exact message at which the age scan ends."""
    policy, scan_end = rows.plan.header.policy, rows.plan.cause.scan_end
    if scan_end is None or policy.max_age_ns is None or not policy.whole_segments:
        return scan_end
    return rows.first_young(partition, scan_end, rows.plan.header.as_of_ns - policy.max_age_ns)


def _deletion(rows: PlanRows, message: dict[str, object]) -> dict[str, Any]:
    """Fields of `Facts`: the last message on a message's subject, and its time if it is a deletion."""
    if rows.plan.header.policy.delete_retention_ns is None:
        return {}
    last = rows.last_on_subject(message)
    [operation] = kv.operations(pa.array([last["headers"]], pa.binary())).to_pylist()
    deletes = operation != kv.PUT
    return {"last_on_subject": last["seq"], "deleted_ns": last["ts_ns"] if deletes else None}


def _held(plan: Plan, message: dict[str, object]) -> dict[str, Any]:
    """Fields of `Facts`: the line on consumer protection, and whether the message is held from limits."""
    rule, protection = plan.header.policy.hold, plan.cause.protection
    if rule is None or protection is None:
        return {}
    missing = missing_consumers(rule, plan.cause.consumers)
    covered, line = protection_line(_row(message), rule, protection, missing)
    return {"held": line, "is_held": covered and rule.action == "hold"}


def _needs(plan: Plan, message: dict[str, object]) -> str | None:
    if plan.header.policy.retention == "limits":
        return None
    return needs_line(_row(message), plan.header.policy, plan.cause.consumers.interests)[1]


def _row(message: dict[str, object]) -> pa.Table:
    """A message as a table of one row."""
    columns = {name: [message[name]] for name in RULE_COLUMNS}
    return pa.table(columns).set_column(1, "subject", pa.array([message["subject"]], pa.string()))
