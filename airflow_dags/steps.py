"""Steps of a stream's maintenance: the job of each, its arguments, its counts, and when there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ASKED = "asked"
"""XCom key of `approve`: the path of the report about which a person was asked."""
Counts = dict[str, Any]
"""A step's numbers and the path of its report: what goes through XCom."""


@dataclass(frozen=True)
class Past:
    """What is known of a stream when one of its steps begins."""

    params: Mapping[str, Any]
    """The run's parameters: `streams`, `as_of`, `dry_run`."""
    plan: Counts | None = None
    """The plan's counts; None: the stream was not planned."""
    approved: str | None = None
    """The path of the report that a person has approved; None: nobody has, or had to."""


@dataclass(frozen=True)
class Step:
    """One step: its task, job and arguments, and the numbers of its report."""

    name: str
    job: str
    arguments: Callable[[Past], list[str]]
    counts: Callable[[Mapping[str, Any]], Counts]
    """The counts of the report's entry of the stream."""
    amounts: tuple[str, ...]
    """The counts of which one is not 0 if the step has changed, or would change, anything."""
    in_dry_run: bool = field(default=False)


class NotPlannedError(Exception):
    """A step rests on a plan that is not there."""


def past_of(
    params: Mapping[str, Any],
    plan: Counts | None,
    answer: Mapping[str, Any] | None,
    question: str | None,
) -> Past:
    """What earlier tasks have left: an answer counts for the plan about which it was asked, and for no other.

    Args:
        params: the run's.
        plan: what `plan` returned; None: nothing.
        answer: what `approve` returned, with `chosen_options`; None: nobody was asked.
        question: the path of the report about which somebody was asked.
    """
    is_approved = (
        plan is not None
        and plan["needs_approval"]
        and (answer or {}).get("chosen_options") == ["Approve"]
        and question == plan["report"]
    )
    return Past(params, plan, question if is_approved else None)


def reason_to_skip(step: Step, stream: str, past: Past) -> str | None:
    """The reason why a step is not for this run; None: it is."""
    chosen = past.params.get("streams")
    if chosen and stream not in chosen:
        return f"{stream} is not among the streams of this run"
    if past.params.get("dry_run") and not step.in_dry_run:
        return "a dry run plans and does nothing else"
    return None


def is_nothing(step: Step, counts: Counts) -> bool:
    """Whether a step has found nothing to do."""
    return not any(counts[name] for name in step.amounts)


def _plan_arguments(past: Past) -> list[str]:
    as_of = past.params.get("as_of")
    return [] if as_of in (None, "") else [f"--as-of={as_of}"]


def _apply_arguments(past: Past) -> list[str]:
    """The approved report and no more than that, or else the plan's instant."""
    if past.plan is None:
        raise NotPlannedError("there is no plan to apply; clear the task `plan` of this stream")
    if past.approved is not None:
        return [f"--approved={past.approved}"]
    return [f"--as-of={past.plan['as_of_ns']}"]


def _plan_counts(entry: Mapping[str, Any]) -> Counts:
    return _removal_counts(entry) | {
        "would_change": entry["would_change"],
        "needs_approval": entry["needs_approval"],
    }


def _removal_counts(entry: Mapping[str, Any]) -> Counts:
    return {
        "messages": entry["removed_messages"],
        "bytes": entry["removed_bytes"],
        "by_rule": entry["by_rule"],
        "markers": entry["markers"],
    }


def _compaction_counts(entry: Mapping[str, Any]) -> Counts:
    # A stream without `compact` in the configuration is left out of the report.
    return {name: entry.get(name, 0) for name in ("merges", "files_before", "files_after")}


def _reclaim_counts(entry: Mapping[str, Any]) -> Counts:
    return {name: entry[name] for name in ("files", "bytes")}


PLAN = Step("plan", "plan", _plan_arguments, _plan_counts, ("would_change",), in_dry_run=True)
APPLY = Step("apply", "retain", _apply_arguments, _removal_counts, ("messages", "markers"))
COMPACT = Step("compact", "compact", lambda _: ["--configured"], _compaction_counts, ("merges",))
RECLAIM = Step("reclaim", "reclaim", lambda _: [], _reclaim_counts, ("files",))
