"""The settings of runs in words: guards and approval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retention.config.keeping import Approval
from retention.core.removal_guards import RemovalGuards
from retention.core.units import format_size
from retention.core.wording import counted


def as_sentences(clauses: Sequence[str]) -> str:
    """Clauses as sentences; the first begins in lower case, after a name and a colon."""
    first, *others = clauses
    return f"{'. '.join([first, *(text[0].upper() + text[1:] for text in others)])}."


def guards_in_words(guards: RemovalGuards, noun: str) -> Iterator[str]:
    """Describe the effect of guards, a clause each, on messages or rows."""
    bounds = (
        (guards.max_removed_share, f"removes more than {{}}% of the {noun}s", str),
        (guards.max_removed_bytes, "removes more than {}", format_size),
        (guards.min_kept_messages, f"keeps fewer than {{}} {noun}s", "{:,}".format),
    )
    for guard, text, written in bounds:
        # A minimum of zero is always met.
        if guard is not None and not (guard is guards.min_kept_messages and guard.limit == 0):
            then = "is refused" if guard.then == "refuse" else "reports it"
            yield f"a pass that {text.format(written(guard.limit))} {then}"


def approval_in_words(approve: Approval, noun: str) -> str:
    """Describe the amounts from which scheduled jobs ask a person."""
    ask = "scheduled jobs ask a person before"
    bounds = []
    if approve.above == 0:
        return f"{ask} any {noun} is removed"
    if approve.above is not None:
        bounds.append(counted(approve.above, noun))
    if approve.above_bytes is not None:
        bounds.append(format_size(approve.above_bytes))
    return f"{ask} removing more than {' or '.join(bounds)} at once"
