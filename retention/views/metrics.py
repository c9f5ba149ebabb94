"""Metrics of a run in Prometheus's text format, for the textfile collector of its node exporter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from retention.core.outcomes import Outcome
from retention.core.units import SECOND
from retention.storage.outputs import OutputKind, begins

if TYPE_CHECKING:
    from retention.inspect.measures import Measures

METRICS_FILE = OutputKind("metrics of a run", begins(r"# HELP retention_"))
"""The file of `--metrics-file`."""
_UNLISTED = "retention_stream_unlisted"
_SUCCESS = "retention_stream_last_success_timestamp_seconds"
HELP: Mapping[str, str] = {
    "retention_run_end_timestamp_seconds": "When the last run ended, Unix time.",
    "retention_run_duration_seconds": "How long the last run took.",
    "retention_run_exit_code": "The exit code of the last run; 0 is success.",
    _SUCCESS: "When the last successful run on the stream ended, Unix time.",
    "retention_stream_duration_seconds": "How long the last run worked on the stream.",
    "retention_stream_exit_code": "The exit code of the last run for the stream alone; 0 is success.",
    "retention_stream_left": "Whether the budget of the last run deferred the stream to the next one (1) or not (0).",
    "retention_stream_removed_messages": "Messages that the last run removed, by rule.",
    "retention_stream_removed_bytes": "Bytes of the messages that the last run removed.",
    "retention_stream_held_messages": "Messages that limits would remove, kept for consumers.",
    "retention_stream_merged_files": "Files that the last compaction merged.",
    "retention_stream_pending_merges": "Merges that the last compaction planned and left for the next one.",
    "retention_stream_reclaimed_bytes": "Bytes of dead files that the last reclaim deleted.",
    "retention_stream_mirrored_messages": "Messages that the last run copied to the stream.",
    "retention_stream_removed_messages_total": "Messages that runs removed, by rule.",
    "retention_stream_removed_bytes_total": "Bytes of the messages that runs removed.",
    "retention_stream_merged_files_total": "Files that compactions merged.",
    "retention_stream_reclaimed_bytes_total": "Bytes of dead files that reclaims deleted.",
    "retention_stream_mirrored_messages_total": "Messages that runs copied to the stream.",
    "retention_stream_messages": "Messages in the stream after the run.",
    "retention_stream_bytes": "Bytes of the messages in the stream, as the broker counts them.",
    _UNLISTED: "Whether no configuration lists the stream any more (1), so that nothing is removed, or one does (0).",
    "retention_stream_lag_seconds": "How long the stream has been behind its policy, after the run.",
    "retention_stream_small_files": "Files that a compaction would merge.",
    "retention_stream_dead_bytes": "Bytes of dead files on disk: due for a reclaim, or waiting for the grace to end.",
    "retention_stream_oldest_dead_age_seconds": "How long the oldest dead file has been dead; 0 without dead files.",
}
"""The name of each metric, in the order of the file, and its explanation; counters end in `_total`."""
_VALUE = r'"((?:[^"\\]|\\.)*)"'
_SAMPLE = re.compile(
    rf"({_SUCCESS}|retention_stream_\w+_total)"
    rf'{{command="(?:[^"\\]|\\.)*",stream={_VALUE}(?:,rule={_VALUE})?}} (\S+)'
)
_ESCAPES = {"\\": r"\\", "\n": r"\n", '"': r"\""}

Values = dict[str, list[tuple[Mapping[str, str], float]]]
"""Metric → its samples: labels and a value."""


class _Series(NamedTuple):
    """A series of a command's file."""

    metric: str
    stream: str
    rule: str = ""


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
    unlisted: Sequence[str] = ()
    """The streams that no configuration lists any more."""
    unreported: Sequence[str] = ()
    """Such streams that the configuration does not report (`unlisted: keep`)."""


def metrics_text(run: CommandRun, before: str = "") -> str:
    """The metrics of a run as the content of a file.

    Args:
        run: the run.
        before: the content of the file so far: last successes and counter values.
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
        rules = run.measures[stream].rules if stream in run.measures else ()
        _add_stream(values, command | {"stream": stream}, outcomes, rules)
    listings = dict.fromkeys([*by_stream, *run.unlisted])
    for stream in (name for name in listings if name not in run.unreported):
        listing = (command | {"stream": stream}, int(stream in set(run.unlisted)))
        values[_UNLISTED].append(listing)
    for stream, measures in run.measures.items():
        _add_measures(values, command | {"stream": stream}, measures)
    kept = _kept(before)
    _add_successes(values[_SUCCESS], run, by_stream, kept)
    _add_totals(values, run, by_stream, kept)
    return "".join(_family(name, samples) for name, samples in values.items() if samples)


def _add_stream(
    values: Values,
    labels: Mapping[str, str],
    outcomes: Sequence[Outcome[Any]],
    rules: Sequence[str],
) -> None:
    seconds = sum(outcome.seconds for outcome in outcomes)
    code = next((outcome.exit_code for outcome in outcomes if outcome.exit_code), 0)
    values["retention_stream_duration_seconds"].append((labels, seconds))
    values["retention_stream_exit_code"].append((labels, code))
    for report in (outcome.value for outcome in outcomes if outcome.value is not None):
        for name, value, more in _of_report(report.as_json(), rules):
            values[f"retention_stream_{name}"].append(({**labels, **more}, value))


def _of_report(
    entry: Mapping[str, Any], rules: Sequence[str]
) -> Iterator[tuple[str, float, Mapping[str, str]]]:
    """The samples of a report: a metric, its value, and labels of its own."""
    if "by_rule" in entry:
        yield "left", int("left" in entry), {}
        yield "removed_bytes", entry["removed_bytes"], {}
        for rule, messages in (dict.fromkeys(rules, 0) | entry["by_rule"]).items():
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
    values["retention_stream_messages"].append((labels, measures.messages))
    values["retention_stream_bytes"].append((labels, measures.bytes))
    if measures.lag_seconds is not None:
        values["retention_stream_lag_seconds"].append((labels, measures.lag_seconds))
    values["retention_stream_small_files"].append((labels, measures.small_files))
    dead = values["retention_stream_dead_bytes"]
    dead.append(({**labels, "state": "due"}, measures.due_bytes))
    dead.append(({**labels, "state": "waiting"}, measures.waiting_bytes))
    oldest = values["retention_stream_oldest_dead_age_seconds"]
    oldest.append((labels, measures.oldest_dead_seconds))


def _add_successes(
    samples: list[tuple[Mapping[str, str], float]],
    run: CommandRun,
    by_stream: Mapping[str, Sequence[Outcome[Any]]],
    kept: Mapping[_Series, float],
) -> None:
    """Add the last success of each stream: this run, an earlier one, or 0; if a run failed as a whole, all are kept."""
    for stream in by_stream or dict.fromkeys(series.stream for series in kept):
        success = kept.get(_Series(_SUCCESS, _encodable(stream)), 0)
        if stream in by_stream and all(map(_is_done, by_stream[stream])):
            success = run.ended_ns / SECOND
        samples.append(({"command": run.command, "stream": stream}, success))


def _add_totals(
    values: Values,
    run: CommandRun,
    by_stream: Mapping[str, Sequence[Outcome[Any]]],
    kept: Mapping[_Series, float],
) -> None:
    """Add each counter: its value in the file so far, and this run's increment."""
    streams = set(map(_encodable, by_stream)) or {series.stream for series in kept}
    for name in (name for name in HELP if name.endswith("_total")):
        totals = {
            series: value
            for series, value in kept.items()
            if series.metric == name and series.stream in streams
        }
        for labels, value in values[name.removesuffix("_total")]:
            series = _Series(name, _encodable(labels["stream"]), labels.get("rule", ""))
            totals[series] = totals.get(series, 0) + value
        for series, value in totals.items():
            labels = {"command": run.command, "stream": series.stream}
            values[name].append((labels | ({"rule": series.rule} if series.rule else {}), value))


def _is_done(outcome: Outcome[Any]) -> bool:
    return outcome.error is None and not getattr(outcome.value, "is_left", False)


def _kept(content: str) -> dict[_Series, float]:
    """The samples in the content of a file that are kept across runs."""
    matches = (_SAMPLE.fullmatch(line) for line in content.split("\n"))
    return {
        _Series(match[1], _unescaped(match[2]), match[3] or ""): float(match[4])
        for match in matches
        if match is not None
    }


def _family(name: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> str:
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}"]
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
    return str(int(value)) if value == int(value) else repr(round(value, 3))
