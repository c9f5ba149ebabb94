"""Metrics of a run in Prometheus's text format, for the textfile collector of its node exporter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from retention.core.outcomes import Outcome
from retention.core.units import SECOND
from retention.storage.outputs import OutputKind, begins

if TYPE_CHECKING:
    from retention.inspect.measures import Measures

METRICS_FILE = OutputKind("metrics of a run", begins(r"# HELP retention_"))
"""The file of `--metrics-file`."""
_SUCCESS = "retention_stream_last_success_timestamp_seconds"
HELP: Mapping[str, str] = {
    "retention_run_end_timestamp_seconds": "When the last run ended, Unix time.",
    "retention_run_duration_seconds": "How long the last run took.",
    "retention_run_exit_code": "The exit code of the last run; 0 is success.",
    _SUCCESS: "When the last run that was done with the stream ended, Unix time.",
    "retention_stream_duration_seconds": "How long the last run was at work on the stream.",
    "retention_stream_exit_code": "The exit code of the last run for the stream alone; 0 is success.",
    "retention_stream_left": "Whether the budget of the last run left the stream to the next one (1) or not (0).",
    "retention_stream_removed_messages": "Messages that the last run removed, by the rule that took them.",
    "retention_stream_removed_bytes": "Bytes of the messages that the last run removed.",
    "retention_stream_held_messages": "Messages that limits would take and that stay for consumers.",
    "retention_stream_merged_files": "Files that the last compaction merged.",
    "retention_stream_pending_merges": "Merges that the last compaction planned and left for the next one.",
    "retention_stream_reclaimed_bytes": "Bytes of dead files that the last reclaim deleted.",
    "retention_stream_mirrored_messages": "Messages that the last run carried over to the stream.",
    "retention_stream_lag_seconds": "How long the stream has been behind its policy, as the run left it.",
    "retention_stream_small_files": "Files that a compaction would merge.",
    "retention_stream_dead_bytes": "Bytes of dead files on disk: due for a reclaim, or waiting for the grace to end.",
}
"""The name of each metric, in the order of the file, and its explanation; all are gauges."""
_SAMPLE = re.compile(rf'{_SUCCESS}{{command="(?:[^"\\]|\\.)*",stream="((?:[^"\\]|\\.)*)"}} (\S+)')
_ESCAPES = {"\\": r"\\", "\n": r"\n", '"': r"\""}

Values = dict[str, list[tuple[Mapping[str, str], float]]]
"""Metric → its samples: labels and a value."""


@dataclass(frozen=True)
class CommandRun:
    """A run of a command or job."""

    command: str
    started_ns: int
    ended_ns: int
    exit_code: int
    outcomes: Sequence[Outcome[Any]] = ()
    measures: Mapping[str, Measures] = field(default_factory=dict)
    """The measures of each stream that could be measured."""


def metrics_text(run: CommandRun, before: str = "") -> str:
    """The metrics of a run as the content of a file.

    Args:
        run: the run.
        before: the content of the file so far, from which a stream that the run was not done with has its last success.
    """
    values: Values = {name: [] for name in HELP}
    command = {"command": run.command}
    values["retention_run_end_timestamp_seconds"].append((command, run.ended_ns / SECOND))
    values["retention_run_duration_seconds"].append(
        (command, (run.ended_ns - run.started_ns) / SECOND)
    )
    values["retention_run_exit_code"].append((command, run.exit_code))
    by_stream: dict[str, list[Outcome[Any]]] = {}
    for outcome in run.outcomes:
        by_stream.setdefault(outcome.stream, []).append(outcome)
    for stream, outcomes in by_stream.items():
        _add_stream(values, command | {"stream": stream}, outcomes)
    for stream, measures in run.measures.items():
        _add_measures(values, command | {"stream": stream}, measures)
    _add_successes(values[_SUCCESS], run, by_stream, _successes(before))
    return "".join(_family(name, samples) for name, samples in values.items() if samples)


def _add_stream(
    values: Values, labels: Mapping[str, str], outcomes: Sequence[Outcome[Any]]
) -> None:
    seconds = sum(outcome.seconds for outcome in outcomes)
    code = next((outcome.exit_code for outcome in outcomes if outcome.exit_code), 0)
    values["retention_stream_duration_seconds"].append((labels, seconds))
    values["retention_stream_exit_code"].append((labels, code))
    for report in (outcome.value for outcome in outcomes if outcome.value is not None):
        for name, value, more in _of_report(report.as_json()):
            values[f"retention_stream_{name}"].append(({**labels, **more}, value))


def _of_report(entry: Mapping[str, Any]) -> Iterator[tuple[str, float, Mapping[str, str]]]:
    """The samples of a report, by what it reports of: a metric, its value, and labels of its own."""
    if "by_rule" in entry:
        yield "left", int("left" in entry), {}
        yield "removed_bytes", entry["removed_bytes"], {}
        for rule, messages in entry["by_rule"].items():
            yield "removed_messages", messages, {"rule": rule}
        held = entry.get("held", {})
        if held and held.get("action") != "warn":
            yield "held_messages", held["messages"], {}
    elif "merges" in entry:
        yield "merged_files", entry["files_before"], {}
        yield "pending_merges", entry["pending"], {}
    elif "staying" in entry:
        yield "reclaimed_bytes", entry["bytes"], {}
    elif "origins" in entry:
        yield "mirrored_messages", entry["messages"], {}


def _add_measures(values: Values, labels: Mapping[str, str], measures: Measures) -> None:
    if measures.lag_seconds is not None:
        values["retention_stream_lag_seconds"].append((labels, measures.lag_seconds))
    values["retention_stream_small_files"].append((labels, measures.small_files))
    dead = values["retention_stream_dead_bytes"]
    dead.append(({**labels, "state": "due"}, measures.due_bytes))
    dead.append(({**labels, "state": "waiting"}, measures.waiting_bytes))


def _add_successes(
    samples: list[tuple[Mapping[str, str], float]],
    run: CommandRun,
    by_stream: Mapping[str, Sequence[Outcome[Any]]],
    before: Mapping[str, float],
) -> None:
    """Add the last success of each stream: this run, or an earlier one; a run that failed as a whole keeps all."""
    for stream in by_stream or before:
        success = before.get(_encodable(stream))
        if stream in by_stream and all(map(_is_done, by_stream[stream])):
            success = run.ended_ns / SECOND
        if success is not None:
            samples.append(({"command": run.command, "stream": stream}, success))


def _is_done(outcome: Outcome[Any]) -> bool:
    return outcome.error is None and not getattr(outcome.value, "is_left", False)


def _successes(content: str) -> dict[str, float]:
    """The last successes in the content of a file, by stream."""
    matches = (_SAMPLE.fullmatch(line) for line in content.split("\n"))
    return {_unescaped(match[1]): float(match[2]) for match in matches if match is not None}


def _family(name: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> str:
    lines = [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
    lines += [f"{name}{{{_labels(labels)}}} {_number(value)}" for labels, value in samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _encodable(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


def _escaped(value: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in _encodable(value))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(round(value, 3))
