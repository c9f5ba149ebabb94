"""The check of a run history: runs of newer releases, and interrupted ones."""

from __future__ import annotations

from collections.abc import Iterator

from retention.core.wording import counted
from retention.doctor.finding import Finding, ok, problem, warning
from retention.history.kinds import NewerRun
from retention.history.runs import History


def check_runs(
    history: History, content: str, known_by: str, stream: str | None = None
) -> Iterator[Finding]:
    """Check the runs of a stream or table.

    Args:
        history: its runs.
        content: what they remove and restore, such as `messages of the stream`.
        known_by: where the outcome of an interrupted run is found, such as `the log`.
        stream: the stream of the findings.
    """
    outcomes, unfinished = list(history.outcomes()), history.unfinished()
    newer = [record for record in outcomes if isinstance(record, NewerRun)]
    if newer:
        yield problem(
            "runs",
            f"run {newer[0].run} is of a kind that this release does not know ({newer[0].kind}): a newer one made it",
            f"use that release, or a later one, to remove or restore {content}",
            stream,
        )
    if unfinished:
        yield warning(
            "runs",
            f"{counted(len(unfinished), 'run has', 'runs have')} begun without an outcome, {unfinished[0]} the first",
            f"run `retention apply`: it determines their outcomes from {known_by}; one may be in progress",
            stream,
        )
    else:
        yield ok("runs", f"{len(outcomes):,} finished, none interrupted", stream)
