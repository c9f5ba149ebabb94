"""What the rules compare about one message, and what comes of it, in words."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.policy import Policy
from retention.core.units import MINUTE, SECOND, format_duration, format_instant, format_size
from retention.rules import MAX_AGE, MAX_BYTES, MAX_MSGS, MAX_MSGS_PER_SUBJECT, MSG_TTL
from schemas.messages import NEVER


@dataclass(frozen=True)
class Facts:
    """What the rules compare about one message."""

    seq: int
    subject: str
    ts_ns: int
    size: int
    deadline_ns: int | None
    newer: int
    """Messages with higher sequences."""
    bytes_with_newer: int
    newer_on_subject: int
    as_of_ns: int
    scan_end: int | None
    """The message at which the age scan ends, if that comes before this one."""
    marker: int | None = None
    """The sequence of the delete marker that announces that it is gone."""
    refused: bool = False
    """Age or TTL would take it, but the marker that would have to announce it does not fit."""
    needs: str | None = None
    """What consumers say of it; None: none was asked."""
    held: str | None = None
    """What the hold for consumers says of it; None: there is none."""
    is_held: bool = False
    """Limits leave it alone, whatever they say."""


IN_KEPT_SEGMENT = "; but whole_segments is set, and its segment is open or holds messages that stay"


def arithmetic(policy: Policy, facts: Facts) -> tuple[str, ...]:
    """A line for each rule of the policy, in the order of a pass.

    Args:
        policy: the stream's rules.
        facts: the message.
    """
    refuses = ": discard is new, so this limit refuses new messages and never removes stored ones"
    lines = [] if facts.needs is None else [facts.needs]
    if policy.max_msgs is not None:
        lines.append(
            MAX_MSGS + (refuses if policy.discard == "new" else _count_line(policy.max_msgs, facts))
        )
    if policy.max_bytes is not None:
        lines.append(
            MAX_BYTES
            + (refuses if policy.discard == "new" else _bytes_line(policy.max_bytes, facts))
        )
    if policy.max_msgs_per_subject is not None:
        lines.append(MAX_MSGS_PER_SUBJECT + _subject_line(policy.max_msgs_per_subject, facts))
    if policy.max_age_ns is not None:
        lines.append(MAX_AGE + _age_line(policy.max_age_ns, facts))
    if policy.allow_msg_ttl:
        lines.append(MSG_TTL + _ttl_line(facts))
    if facts.held is not None:
        lines.append(facts.held)
    return tuple(lines)


def _count_line(limit: int, facts: Facts) -> str:
    return f" {limit:,}: {_messages(facts.newer)} newer than it"


def _bytes_line(limit: int, facts: Facts) -> str:
    return f" {format_size(limit)} ({limit:,} bytes): it and everything newer take {facts.bytes_with_newer:,} bytes"


def _subject_line(limit: int, facts: Facts) -> str:
    return f" {limit:,}: {_messages(facts.newer_on_subject)} newer on its subject"


def _age_line(max_age_ns: int, facts: Facts) -> str:
    age_ns = facts.as_of_ns - facts.ts_ns
    line = f" {format_duration(max_age_ns)}: it is {_age(age_ns)} old, stored {format_instant(facts.ts_ns)}"
    if age_ns < max_age_ns:
        return f"{line}, and goes at {format_instant(facts.ts_ns + max_age_ns)}"
    if facts.deadline_ns == NEVER:
        return f"{line}, but its Nats-TTL is never, so age does not remove it"
    if facts.scan_end is not None:
        return (
            f"{line}, but the scan from the oldest sequence ended before it, at message {facts.scan_end:,}, which is "
            "young enough to stay"
        )
    return line


def _ttl_line(facts: Facts) -> str:
    if facts.deadline_ns is None:
        return ": it has no Nats-TTL"
    if facts.deadline_ns == NEVER:
        return ": its Nats-TTL is never"
    if facts.deadline_ns < facts.ts_ns:
        return ": its Nats-TTL reaches beyond the year 2262, which the server takes for long past"
    lived, deadline = facts.as_of_ns - facts.deadline_ns, format_instant(facts.deadline_ns)
    if lived < 0:
        return f": its Nats-TTL ends at {deadline}, in {_age(-lived)}"
    return f": its Nats-TTL ended at {deadline}, {_age(lived)} ago"


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


def _age(age_ns: int) -> str:
    """An age for reading: whole seconds, unless it is shorter than a minute."""
    whole = age_ns if abs(age_ns) < MINUTE else age_ns // SECOND * SECOND
    return format_duration(whole) if whole >= 0 else f"-{format_duration(-whole)}"


def sentence(stream: str, policy: Policy, facts: Facts, rule: str | None, *, goes: bool) -> str:
    """Why a message goes or stays.

    Args:
        stream: its stream.
        policy: the stream's rules.
        facts: the message.
        rule: the first that lets it go by itself; None: none does.
        goes: whether the plan removes it.
    """
    named = f"{stream} {facts.seq:,} ({facts.subject})"
    lines = arithmetic(policy, facts)
    if rule is None:
        refused = "; but the delete marker that would announce it does not fit, so it stays until one does"
        because = "; ".join(lines) if lines else "no limit is set"
        return f"{named} stays: {because}{refused if facts.refused else ''}."
    because = next(line for line in lines if line.startswith((f"{rule} ", f"{rule}:")))
    if goes and facts.marker is not None:
        return f"{named} goes: {because}; delete marker {facts.marker:,} announces it."
    if goes:
        return f"{named} goes: {because}."
    return f"{named} stays: {because}{IN_KEPT_SEGMENT}."
