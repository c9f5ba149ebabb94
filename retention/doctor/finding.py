"""The finding of a check as a value: a result, one sentence, and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from retention.core.json_object import JsonObject
from retention.core.outcomes import sentence_of
from retention.errors import RefusedError, VerificationError

Result = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    result: Result
    detail: str
    remedy: str = ""
    stream: str | None = None
    """The stream checked; None: the machine, the warehouse, or a table."""
    damage: bool = False
    """Whether data is damaged or missing, which is worse than a refused run."""
    table: str | None = None
    """The table in place that was checked."""

    def as_json(self) -> JsonObject:
        """The finding as JSON values."""
        names = ("check", "stream", "table", "result", "detail", "remedy")
        return {name: getattr(self, name) for name in names}


def ok(check: str, detail: str, stream: str | None = None) -> Finding:
    """A finding without a problem."""
    return Finding(check, "ok", detail, stream=stream)


def warning(check: str, detail: str, remedy: str, stream: str | None = None) -> Finding:
    """A finding that costs time, or may become a problem later; runs succeed."""
    return Finding(check, "warning", detail, remedy, stream)


def problem(check: str, detail: str, remedy: str, stream: str | None = None) -> Finding:
    """A finding that blocks runs."""
    return Finding(check, "problem", detail, remedy, stream)


def problem_of_error(check: str, error: Exception, stream: str | None = None) -> Finding:
    """The problem for an error that a run would raise: its sentence, with the remedy as the last clause."""
    text = sentence_of(error)
    separator = "; " if "; " in text else ": "
    detail, _, remedy = text.rpartition(separator)
    damage = isinstance(error, VerificationError)
    return Finding(check, "problem", detail or text, remedy, stream, damage)


def findings_of(
    checks: Iterable[tuple[str, Callable[..., Iterator[Finding]]]], *about: object
) -> Iterator[Finding]:
    """The findings of named checks; an exception in a check becomes its finding, and the other checks continue."""
    for name, check in checks:
        try:
            yield from check(*about)
        except Exception as error:  # a run would have raised it as well
            yield problem_of_error(name, error)


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """A heading for the machine, each stream and table, then a line per finding, with the remedy of each problem."""
    for name, group in groupby(findings, lambda finding: finding.stream or finding.table):
        yield name or "machine and warehouse"
        for finding in group:
            yield f"  {finding.result:<8} {finding.check}: {finding.detail}"
            if finding.remedy:
                yield f"           → {finding.remedy}"


def exit_code(findings: Iterable[Finding]) -> int:
    """The exit code of findings: 0 without a problem, 6 if data is damaged or missing, otherwise 4."""
    problems = [finding for finding in findings if finding.result == "problem"]
    if any(finding.damage for finding in problems):
        return VerificationError.exit_code
    return RefusedError.exit_code if problems else 0
