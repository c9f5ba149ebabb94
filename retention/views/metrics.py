"""Metrics of a run in Prometheus's text format, for the textfile collector of its node exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from retention.core.outcomes import Outcome
from retention.core.units import SECOND
from retention.storage.outputs import OutputKind, begins

if TYPE_CHECKING:
    from prometheus_client import Metric

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
_KEPT = frozenset(name for name in HELP if name == _SUCCESS or name.endswith("_total"))
"""The metrics that continue from run to run."""


class _Series(NamedTuple):
    """A series of a command's file; an empty label is none."""

    metric: str
    stream: str = ""
    rule: str = ""
    state: str = ""


Values = dict[_Series, float]
"""The value of each series."""


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
    by_stream: dict[str, list[Outcome[Any]]] = {}
    for outcome in run.outcomes:
        by_stream.setdefault(_encodable(outcome.stream), []).append(outcome)
    measured = {_encodable(stream): measures for stream, measures in run.measures.items()}
    values = {
        _Series("retention_run_end_timestamp_seconds"): run.ended_ns / SECOND,
        _Series("retention_run_duration_seconds"): (run.ended_ns - run.started_ns) / SECOND,
        _Series("retention_run_exit_code"): run.exit_code,
    }
    for stream, outcomes in by_stream.items():
        values |= _of_outcomes(
            stream, outcomes, measured[stream].rules if stream in measured else ()
        )
    unlisted, unreported = (set(map(_encodable, names)) for names in (run.unlisted, run.unreported))
    listed = (by_stream.keys() | unlisted) - unreported
    values |= {_Series(_UNLISTED, stream): stream in unlisted for stream in sorted(listed)}
    for stream, measures in measured.items():
        values |= _of_measures(stream, measures)
    kept = _kept(before)
    values |= _successes(run, by_stream, kept)
    values |= _totals(values, by_stream.keys() or {series.stream for series in kept}, kept)
    return _exposition(run.command, values)


def _of_outcomes(stream: str, outcomes: Sequence[Outcome[Any]], rules: Sequence[str]) -> Values:
    code = next((outcome.exit_code for outcome in outcomes if outcome.exit_code), 0)
    values = {
        _Series("retention_stream_duration_seconds", stream): sum(
            each.seconds for each in outcomes
        ),
        _Series("retention_stream_exit_code", stream): code,
    }
    for report in (outcome.value for outcome in outcomes if outcome.value is not None):
        for name, value, rule in _of_report(report.as_json(), rules):
            values[_Series(f"retention_stream_{name}", stream, rule)] = value
    return values


def _of_report(entry: Mapping[str, Any], rules: Sequence[str]) -> Iterator[tuple[str, float, str]]:
    """The samples of a report: a metric, its value, and its rule, if it is of one."""
    if "by_rule" in entry:
        yield "left", int("left" in entry), ""
        yield "removed_bytes", entry["removed_bytes"], ""
        for rule, messages in (dict.fromkeys(rules, 0) | entry["by_rule"]).items():
            yield "removed_messages", messages, rule
        held = entry.get("held", {})
        if held and held.get("action") != "warn":
            yield "held_messages", held["messages"], ""
    elif "merges" in entry:
        yield "merged_files", entry["files_before"], ""
        yield "pending_merges", entry["pending"], ""
    elif "staying" in entry:
        yield "reclaimed_bytes", entry["bytes"], ""
    elif "origins" in entry:
        yield "mirrored_messages", entry["messages"], ""


def _of_measures(stream: str, measures: Measures) -> Values:
    lag, dead = measures.lag_seconds, "retention_stream_dead_bytes"
    return ({} if lag is None else {_Series("retention_stream_lag_seconds", stream): lag}) | {
        _Series("retention_stream_messages", stream): measures.messages,
        _Series("retention_stream_bytes", stream): measures.bytes,
        _Series("retention_stream_small_files", stream): measures.small_files,
        _Series(dead, stream, state="due"): measures.due_bytes,
        _Series(dead, stream, state="waiting"): measures.waiting_bytes,
        _Series("retention_stream_oldest_dead_age_seconds", stream): measures.oldest_dead_seconds,
    }


def _successes(
    run: CommandRun, by_stream: Mapping[str, Sequence[Outcome[Any]]], kept: Values
) -> Values:
    """The last success of each stream: this run, an earlier one, or 0; if a run failed as a whole, all are kept."""
    return {
        _Series(_SUCCESS, stream): run.ended_ns / SECOND
        if stream in by_stream and all(map(_is_done, by_stream[stream]))
        else kept.get(_Series(_SUCCESS, stream), 0)
        for stream in by_stream or dict.fromkeys(series.stream for series in kept)
    }


def _totals(values: Values, streams: Set[str], kept: Values) -> Values:
    """Each counter of some streams: its value in the file so far, and this run's increment."""
    totals = {
        series: value
        for series, value in kept.items()
        if series.metric != _SUCCESS and series.stream in streams
    }
    for gauge, value in values.items():
        series = gauge._replace(metric=f"{gauge.metric}_total")
        if series.metric in HELP:
            totals[series] = totals.get(series, 0) + value
    return totals


def _is_done(outcome: Outcome[Any]) -> bool:
    return outcome.error is None and not getattr(outcome.value, "is_left", False)


def _kept(content: str) -> Values:
    """The samples in the content of a file that are kept across runs; a line that is none is passed over."""
    from prometheus_client.parser import text_string_to_metric_families

    values: Values = {}
    for line in content.split("\n"):
        if line.partition("{")[0] in _KEPT:
            with suppress(ValueError, LookupError):
                for sample in next(iter(text_string_to_metric_families(line))).samples:
                    labels = sample.labels
                    series = _Series(sample.name, labels["stream"], labels.get("rule", ""))
                    values[series] = sample.value
    return values


class _Families(list["Metric"]):
    """Metrics with their samples, as the library collects them."""

    def collect(self) -> list[Metric]:
        return self


def _exposition(command: str, values: Values) -> str:
    """Values as Prometheus's text, in the order of `HELP`."""
    from prometheus_client import Metric, generate_latest

    families = {}
    for name, text in HELP.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        families[name] = Metric(name.removesuffix("_total"), text, kind)
    for (metric, *labels), value in values.items():
        named = zip(_Series._fields[1:], labels, strict=True)
        present = {name: label for name, label in named if label}
        families[metric].add_sample(metric, {"command": command, **present}, value)
    return generate_latest(_Families(filter(attrgetter("samples"), families.values()))).decode()


def _encodable(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()
