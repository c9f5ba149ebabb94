"""Steps of a stream's maintenance: the job of each, its arguments, its counts, and reasons to skip it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ASKED = "asked"
"""XCom key of `approve`: the path of the report in the question to a person."""
ASKING = "asking"
"""XCom key of `approve`: another run with an open question about the same stream."""
STREAM = "stream"
"""XCom key of `approve`: the stream of the question."""
SKIPPED = "skipped"
"""XCom key of every task: the reason why it was skipped."""
PARAMETERS = ("streams", "as_of", "dry_run", "allow_large", "allow_rewind")
"""The parameters of a run."""
LIFTS = {"allow_large": "--allow-large", "allow_rewind": "--allow-rewind"}
"""Parameter with a person's reason → the job's argument, which lifts a refusal once."""
VERIFY = "verify"
"""The name of the step that verifies."""
Counts = dict[str, Any]
"""A step's numbers and the path of its report, for XCom."""


@dataclass(frozen=True)
class Past:
    """The state of a stream at the start of one of its steps."""

    params: Mapping[str, Any]
    """The run's parameters, `PARAMETERS`; missing ones were not given."""
    plan: Counts | None = None
    """The plan's counts; None: the stream was not planned."""
    approved: str | None = None
    """The path of the approved report; None: not approved, or no approval is required."""
    rejected_by: str | None = None
    """The person who rejected the plan; None: not rejected."""
    asking: str | None = None
    """Another run with an open question about the stream; None: there is none, or no approval is required."""


@dataclass(frozen=True)
class Step:
    """One step: its task, job and arguments, and the numbers of its report."""

    name: str
    job: str
    arguments: Callable[[Past], list[str]]
    counts_in: Callable[[Mapping[str, Any]], Counts]
    """The function from the report's entry of the stream to its counts."""
    amounts: tuple[str, ...]
    """The names of the counts that are all 0 if the step changes nothing."""
    in_dry_run: bool = field(default=False)
    passing: tuple[int, ...] = ()
    """The exit codes of failures that may pass, besides those of busy streams and ended jobs."""

    def counts(self, entry: Mapping[str, Any]) -> Counts:
        """The counts in a report's entry of a stream.

        Raises:
            OtherReleaseError: the report lacks one.
        """
        try:
            return self.counts_in(entry)
        except KeyError as missing:
            raise OtherReleaseError(
                f"the report of {self.job} has no {missing}, so the engine and these DAGs are of different "
                "releases; copy the DAGs of the engine's release here, with `retention airflow --copy-to DIR`"
            ) from None


class OtherReleaseError(Exception):
    """The engine is of another release than the DAG package."""


class NotPlannedError(Exception):
    """A step depends on a plan that does not exist."""


def parameter_mistake(conf: Mapping[str, Any], params: Mapping[str, Any]) -> str | None:
    """The sentence about a run's invalid parameters; None: they are valid.

    Args:
        conf: the parameters given at the start of the run.
        params: Airflow's result of `conf` and the DAG's defaults.
    """
    for name, value in conf.items():
        if name not in PARAMETERS:
            close = difflib.get_close_matches(name, PARAMETERS, n=1)
            hint = f"did you mean `{close[0]}`? " if close else ""
            names = ", ".join(f"`{name}`" for name in PARAMETERS)
            return (
                f"this run has an unknown parameter `{name}`; {hint}nothing was done; start another run, with "
                f"parameters among {names}"
            )
        if params.get(name) != value:
            return (
                f"Airflow ignored this run's parameter `{name}`, because `core.dag_run_conf_overrides_params` is "
                "off; nothing was done; switch it on, and start another run"
            )
    lifts = [name for name in LIFTS if params.get(name)]
    if lifts and not params.get("streams"):
        return (
            f"this run has `{lifts[0]}` and chooses no streams, so it would lift refusals for all; nothing was done; "
            "start another run with the intended `streams`"
        )
    return None


def past_of(
    params: Mapping[str, Any],
    plan: Counts | None,
    answer: Mapping[str, Any] | None,
    question: str | None,
    asking: str | None = None,
) -> Past:
    """The state left by earlier tasks; an answer counts only for the plan in its question.

    Args:
        params: the run's parameters.
        plan: the result of `plan`, or None.
        answer: the result of `approve`, with `chosen_options`; None: there was no question.
        question: the path of the report in the question.
        asking: another run with an open question about the stream.
    """
    if plan is None or not plan["needs_approval"]:
        return Past(params, plan)
    if answer is None or question != plan["report"]:
        return Past(params, plan, asking=asking)
    if answer.get("chosen_options") == ["Approve"]:
        return Past(params, plan, approved=question)
    person = answer.get("responded_by_user") or {}
    return Past(params, plan, rejected_by=person.get("name") or "a person")


def reason_to_skip(step: Step, stream: str, past: Past) -> str | None:
    """The reason to skip a step in this run; None: it applies."""
    chosen = past.params.get("streams")
    if chosen and stream not in chosen:
        return f"{stream} is not among the streams of this run"
    if past.params.get("dry_run") and not step.in_dry_run:
        return "a dry run plans and does nothing else"
    if past.rejected_by is not None and step not in (SYNC, PLAN):
        return f"{stream}: {past.rejected_by} has rejected the plan; the stream is kept as it is"
    if step is COMPACT and past.plan is not None and "rows" in past.plan:
        return f"{stream}: a table in place is compacted by its owner"
    if past.asking is not None and step is APPLY:
        return f"{stream}: nothing is removed until the question of run {past.asking} is answered"
    return None


def refusal(step: Step, counts: Counts, past: Past) -> str | None:
    """The sentence to fail a step after its job succeeded; None: the step succeeds."""
    if step is not PLAN or past.params.get("dry_run"):
        return None
    sentence: str | None = counts["refused"]
    return sentence and f"apply would refuse this plan: {sentence}"


def is_nothing(step: Step, counts: Counts) -> bool:
    """Whether a step found nothing to do."""
    return not any(counts.get(name) for name in step.amounts)


def reason_of_nothing(stream: str, counts: Counts) -> str:
    """The reason to skip a step with nothing to do."""
    superseded = counts.get("superseded_by")
    if superseded is None:
        return f"{stream}: nothing to do"
    return (
        f"{stream}: superseded: run {superseded['run']} has applied a later instant than this plan's; nothing was "
        "removed"
    )


def _plan_arguments(past: Past) -> list[str]:
    as_of = past.params.get("as_of")
    lifts = [argument for name, argument in LIFTS.items() if past.params.get(name)]
    return [*([] if as_of in (None, "") else [f"--as-of={as_of}"]), *lifts]


def _apply_arguments(past: Past) -> list[str]:
    """The approved report as the upper limit, or else the plan's instant."""
    if past.plan is None:
        raise NotPlannedError("there is no plan to apply; clear the task `plan` of this stream")
    basis = (
        f"--as-of={past.plan['as_of_ns']}"
        if past.approved is None
        else f"--approved={past.approved}"
    )
    return [basis, _SKIP, *_lifting(past)]


_SKIP = "--skip-superseded"
"""The option with which a superseded pass removes nothing and succeeds."""


def _lifting(past: Past) -> list[str]:
    """The arguments of every pass for refusals lifted by a person, with the reasons."""
    reasons = {name: past.params[name] for name in LIFTS if past.params.get(name)}
    said = [f"--reason={'; '.join(reasons.values())}"] if reasons else []
    return [*(LIFTS[name] for name in reasons), *said]


def _maintenance_arguments(past: Past) -> list[str]:
    """The arguments of a pass, with the instant given by a person, if any."""
    as_of = past.params.get("as_of")
    if as_of in (None, ""):
        return [f"--as-of={(past.plan or {})['as_of_ns']}", _SKIP, *_lifting(past), "--compact"]
    # An instant that a person gave is refused if a later one was applied.
    return [f"--as-of={as_of}", *_lifting(past), "--compact"]


def _plan_counts(entry: Mapping[str, Any]) -> Counts:
    guards = [finding["sentence"] for finding in entry.get("guards", ())]
    extent = () if "table" in entry else ("extent",)
    own = ("would_change", "needs_approval", "refused", "grace", *extent)
    return _removal_counts(entry) | {"guards": guards} | {name: entry[name] for name in own}


def _apply_counts(entry: Mapping[str, Any]) -> Counts:
    """The counts of a pass; if only an earlier try of the task found something to do, the counts of that try."""
    earlier = entry.get("earlier_try")
    return _removal_counts(earlier or entry) | {
        "run": (earlier or entry)["run"],
        "is_of_earlier_try": earlier is not None,
        "superseded_by": entry.get("superseded_by"),
    }


def _removal_counts(entry: Mapping[str, Any]) -> Counts:
    """The counts of a removal: `messages` and `markers` of a stream, `rows` of a table in place."""
    removed = (
        {"rows": entry["removed_rows"]}
        if "table" in entry
        else {"messages": entry["removed_messages"], "markers": entry["markers"]}
    )
    return removed | {"bytes": entry["removed_bytes"], "by_rule": entry["by_rule"]}


def _compaction_counts(entry: Mapping[str, Any]) -> Counts:
    # A stream without `compact` in the configuration is not in the report.
    return {name: entry.get(name, 0) for name in ("merges", "files_before", "files_after")}


def _reclaim_counts(entry: Mapping[str, Any]) -> Counts:
    return {name: entry[name] for name in ("files", "bytes")}


def _verification_counts(entry: Mapping[str, Any]) -> Counts:
    own = {"files": entry["read_files"], "bytes": entry["read_bytes"]}
    return own | {"verdict": entry["verdict"], "unverified": len(entry["unverified"])}


def _sync_counts(entry: Mapping[str, Any]) -> Counts:
    return {name: entry[name] for name in ("origin", "messages", "bytes", "missed", "behind")}


_UNREACHED = 1
"""The exit code of a sync whose server does not answer."""
SYNC = Step("sync", "sync", lambda _: [], _sync_counts, ("origin",), passing=(_UNREACHED,))
"""A sync of a stream; it always did something, so that the steps after it are not skipped."""
SYNC_ALL = Step("sync", "sync", lambda _: [], _sync_counts, ("messages",), passing=(_UNREACHED,))
"""A sync of many streams by one job."""
PLAN = Step("plan", "plan", _plan_arguments, _plan_counts, ("would_change",), in_dry_run=True)
APPLY = Step("apply", "retain", _apply_arguments, _apply_counts, ("messages", "markers", "rows"))
COMPACT = Step("compact", "compact", lambda _: ["--configured"], _compaction_counts, ("merges",))
RECLAIM = Step("reclaim", "reclaim", lambda _: [], _reclaim_counts, ("files",))
MAINTAIN = Step(
    "apply",
    "retain",
    _maintenance_arguments,
    lambda entry: _apply_counts(entry) | _compaction_counts(entry.get("compaction") or {}),
    ("messages", "markers", "rows", "merges"),
)
"""A pass over many streams without a prior plan, and their compaction, by one job."""


def verify_step(share: str) -> Step:
    """The step that verifies a share of each stream's files, such as `1%`, and all records."""
    return Step(VERIFY, "verify", lambda _: [f"--sample={share}"], _verification_counts, ("files",))
