"""The record of a step of a batch: its result for each stream, across all tries of its task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_dags.ending import BUSY, error_of
from airflow_dags.steps import (
    COMPACT,
    PLAN,
    Counts,
    Past,
    Step,
    is_nothing,
    reason_of_nothing,
    refusal,
)

Entry = Mapping[str, Any]
Failure = dict[str, Any]
"""A stream that failed: `stream`, `step`, `sentence` and `exit_code`."""
MOST_FAILURES = 50
"""The maximum number of failed streams of a batch with their own failing tasks."""
MOST_COUNTS = 50
"""The maximum number of streams with counts in XCom."""
_REFUSED = 4
"""The exit code of a stream that a pass refuses to change."""


@dataclass(frozen=True)
class Record:
    """The results of a step, stored among the reports."""

    arguments: Sequence[str]
    """The step's own arguments; a retry with other arguments starts anew."""
    as_of_ns: int
    report: str
    """The path of the report of the last try."""
    streams: Sequence[str]
    """All streams of the step."""
    entries: Mapping[str, Entry]
    """The entries of reports, by stream; the field `compaction` has the entry of its compaction, if there was one."""
    is_over: bool = False
    """Whether no retry follows for busy streams."""

    def passing(self, step: Step) -> list[Failure]:
        """The failures that may pass: of streams busy with another run, and those of the step's own."""
        codes = (BUSY, *step.passing)
        return [
            failure_of_error(step, name, entry)
            for name, entry in self.entries.items()
            if _code(entry) in codes
        ]

    @property
    def refused(self) -> list[str]:
        """The streams refused by the job because of a guard or `approve`."""
        return [name for name, entry in self.entries.items() if _code(entry) == _REFUSED]

    def settled(self, step: Step) -> dict[str, Entry]:
        """The entries of the other streams."""
        passing = {failure["stream"] for failure in self.passing(step)}
        return {name: entry for name, entry in self.entries.items() if name not in passing}

    def failures(self, step: Step, params: Mapping[str, Any]) -> list[Failure]:
        """The streams that failed, or have a plan that would be refused."""
        found = (failure_of(step, name, entry, params) for name, entry in self.entries.items())
        return [failure for failure in found if failure is not None]

    def asking(self, step: Step, params: Mapping[str, Any]) -> list[str]:
        """The streams with a plan that needs an approval."""
        if step is not PLAN or params.get("dry_run"):
            return []
        return [
            name
            for name, entry in self.entries.items()
            if entry.get("needs_approval") and failure_of(step, name, entry, params) is None
        ]

    def remaining(self, step: Step, params: Mapping[str, Any]) -> list[str]:
        """The streams that continue in the batch: not failed, and not refused."""
        failed = {failure["stream"] for failure in self.failures(step, params)}
        return [name for name in self.streams if name not in failed]

    def write(self, path: Path, *, is_over: bool) -> None:
        """Write the record atomically."""
        written = path.with_name(f"{path.name}.new")
        written.write_text(json.dumps(asdict(self) | {"is_over": is_over}), encoding="utf-8")
        written.replace(path)


def read_record(path: Path) -> Record | None:
    """The record at a path; None: there is none."""
    try:
        return Record(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def failure_of(step: Step, name: str, entry: Entry, params: Mapping[str, Any]) -> Failure | None:
    """The failure of an entry; None: there is none."""
    if _error(entry):
        return failure_of_error(step, name, entry)
    refused = refusal(step, step.counts(entry), Past(params))
    if refused is None:
        return None
    return {"stream": name, "step": step.name, "sentence": refused, "exit_code": _REFUSED}


def failure_of_error(step: Step, name: str, entry: Entry) -> Failure:
    """The failure of an entry with an error."""
    error = _error(entry)
    return {
        "stream": name,
        "step": step.name if error_of(entry) else COMPACT.name,
        "sentence": str(error["message"]),
        "exit_code": int(error["exit_code"]),
    }


def first_failures(failures: Sequence[Failure]) -> list[Failure]:
    """The failures with a task each; beyond `MOST_FAILURES`, the last task covers the rest."""
    if len(failures) <= MOST_FAILURES:
        return list(failures)
    *shown, last = failures[:MOST_FAILURES]
    others = len(failures) - MOST_FAILURES
    sentence = f"{last['sentence']}; {others:,} more failed, which the log of `outcomes` names"
    return [*shown, last | {"sentence": sentence}]


def lines_of(step: Step, record: Record, params: Mapping[str, Any]) -> Iterator[str]:
    """A table with the result of each stream; streams without a result share the last line."""
    failed = {failure["stream"]: failure["sentence"] for failure in record.failures(step, params)}
    asking = set(record.asking(step, params))
    said: dict[str, str] = {}
    for name, entry in record.entries.items():
        if name in failed:
            is_refused = step is not PLAN and _code(entry) == _REFUSED
            said[name] = f"{'refused' if is_refused else 'failed'}: {failed[name]}"
        elif name in asking:
            said[name] = f"a person is asked: {entry['needs_approval']}"
        elif entry.get("left"):
            said[name] = "left for the next run by its budget"
        else:
            text = _said(step, name, step.counts(entry))
            if text:
                said[name] = text
    width = max(map(len, said), default=0)
    yield from (f"{name:<{width}}  {text}" for name, text in said.items())
    rest = len(record.streams) - len(said)
    if rest:
        yield f"{rest:,} {'other' if said else 'stream'}{'s' * (rest > 1)}: nothing to do"


def totals(
    step: Step, record: Record, params: Mapping[str, Any], changed: Mapping[str, Counts]
) -> Counts:
    """The totals of a step over all streams, for XCom, and the counts of the first `MOST_COUNTS` changed streams."""
    sums = {name: sum(counts.get(name, 0) for counts in changed.values()) for name in _AMOUNTS}
    refused = 0 if step is PLAN else len(record.refused)
    return {
        "as_of_ns": record.as_of_ns,
        "report": record.report,
        "streams": len(record.streams),
        "failed": len(record.failures(step, params)) - refused,
        "refused": refused,
        "asking": len(record.asking(step, params)),
        "changed": len(changed),
        **{name: amount for name, amount in sums.items() if amount},
        "by_stream": dict(list(changed.items())[:MOST_COUNTS]),
    }


_AMOUNTS = ("messages", "rows", "bytes", "markers", "merges", "files")


def _said(step: Step, name: str, counts: Counts) -> str:
    if not is_nothing(step, counts):
        amounts = ((counts.get(name, 0), name) for name in _AMOUNTS)
        return ", ".join(
            f"{amount:,} {name if amount > 1 else name[:-1]}" for amount, name in amounts if amount
        )
    if counts.get("superseded_by"):
        return reason_of_nothing(name, counts).partition(": ")[2]
    return ""


def _code(entry: Entry) -> int:
    return int((_error(entry) or {}).get("exit_code", 0))


def has_failed(entry: Entry) -> bool:
    """Whether a stream's pass, verification or compaction failed."""
    return bool(_error(entry))


def _error(entry: Entry) -> Any:
    """The error of a stream's pass, verification or compaction; None: none failed."""
    return error_of(entry) or (entry.get("compaction") or {}).get("error")
