"""Metrics of a run in Prometheus's text format, for the textfile collector of its node exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from retention.core.outcomes import Outcome
from retention.core.units import SECOND
from retention.storage.outputs import OutputKind, begins

if TYPE_CHECKING:
    from prometheus_client import Metric

    from retention.inspect.measures import Measures, TableMeasures
    from retention.stores.sidecar.last_verification import LastVerification

METRICS_FILE = OutputKind("metrics of a run", begins(r"# HELP retention_"))
"""The file of `--metrics-file`."""
_UNLISTED = "retention_stream_unlisted"
_SUCCESS = "last_success_timestamp_seconds"
HELP: Mapping[str, str] = {
    "retention_run_end_timestamp_seconds": "When the last run ended, Unix time.",
    "retention_run_duration_seconds": "How long the last run took.",
    "retention_run_exit_code": "The exit code of the last run; 0 is success.",
    f"retention_stream_{_SUCCESS}": "When the last successful run on the stream ended, Unix time.",
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
    "retention_stream_holds": "The legal holds in effect on the stream.",
    "retention_stream_unfinished_erasures": "Erasures of messages of the stream with something left to do.",
    "retention_stream_paused": "Whether a person has paused removals from the stream (1) or not (0).",
    "retention_stream_verified_timestamp_seconds": "When the last verification of the stream ended, Unix time.",
    "retention_stream_verify_findings": "Findings of the last verification, by state: damaged, unverified.",
    "retention_stream_small_files": "Files that a compaction would merge.",
    "retention_stream_dead_bytes": "Bytes of dead files on disk: due for a reclaim, or waiting for the grace to end.",
    "retention_stream_oldest_dead_age_seconds": "How long the oldest dead file has been dead; 0 without dead files.",
    f"retention_table_{_SUCCESS}": "When the last successful run on the table ended, Unix time.",
    "retention_table_duration_seconds": "How long the last run worked on the table.",
    "retention_table_exit_code": "The exit code of the last run for the table alone; 0 is success.",
    "retention_table_left": "Whether the budget of the last run deferred the table to the next one (1) or not (0).",
    "retention_table_removed_rows": "Rows that the last run removed, by limit.",
    "retention_table_removed_bytes": "Bytes of the whole files that the last run removed.",
    "retention_table_reclaimed_bytes": "Bytes of removed files that the last reclaim deleted.",
    "retention_table_removed_rows_total": "Rows that runs removed, by limit.",
    "retention_table_removed_bytes_total": "Bytes of the whole files that runs removed.",
    "retention_table_reclaimed_bytes_total": "Bytes of removed files that reclaims deleted.",
    "retention_table_holds": "The legal holds in effect on the table.",
    "retention_table_unfinished_erasures": "Erasures of rows of the table with something left to do.",
    "retention_table_paused": "Whether a person has paused removals from the table (1) or not (0).",
    "retention_table_verified_timestamp_seconds": "When the last verification of the table ended, Unix time.",
    "retention_table_verify_findings": "Findings of the last verification, by state: damaged, unverified.",
    "retention_table_rows": "Rows of the table after the run.",
    "retention_table_bytes": "Bytes of the table's files.",
    "retention_table_files": "Files of the table.",
    "retention_table_lag_seconds": "How long the table has surely been behind its limits, after the run.",
}
"""The name of each metric, in the order of the file, and its explanation; counters end in `_total`."""
_KEPT = frozenset(name for name in HELP if name.endswith((_SUCCESS, "_total")))
"""The metrics that continue from run to run."""


class _Series(NamedTuple):
    """A series of a command's file; an empty label is none."""

    metric: str
    stream: str = ""
    rule: str = ""
    state: str = ""
    table: str = ""

    @property
    def about(self) -> _About:
        """Its stream or table; without either, that of no name."""
        return _About("table", self.table) if self.table else _About("stream", self.stream)


class _About(NamedTuple):
    """A stream or a table, as metrics name it."""

    kind: Literal["stream", "table"]
    name: str

    def series(self, metric: str, rule: str = "", state: str = "") -> _Series:
        """Its series of a metric, named without the prefix."""
        name = f"retention_{self.kind}_{metric}"
        if self.kind == "table":
            return _Series(name, rule=rule, state=state, table=self.name)
        return _Series(name, self.name, rule, state)


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
    """The outcomes of streams."""
    tables: Sequence[Outcome[Any]] = ()
    """The outcomes of tables in place."""
    measures: Mapping[str, Measures] = field(default_factory=dict)
    """The measures of each stream that could be measured."""
    table_measures: Mapping[str, TableMeasures] = field(default_factory=dict)
    """The measures of each table that could be measured."""
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
    by_name: dict[_About, list[Outcome[Any]]] = {}
    for about, outcome in (
        *((_About("stream", _encodable(each.stream)), each) for each in run.outcomes),
        *((_About("table", _encodable(each.stream)), each) for each in run.tables),
    ):
        by_name.setdefault(about, []).append(outcome)
    streams = {_About("stream", _encodable(name)): each for name, each in run.measures.items()}
    tables = {_About("table", _encodable(name)): each for name, each in run.table_measures.items()}
    rules = {about: each.rules for about, each in streams.items()}
    rules |= {about: each.rules for about, each in tables.items()}
    values = {
        _Series("retention_run_end_timestamp_seconds"): run.ended_ns / SECOND,
        _Series("retention_run_duration_seconds"): (run.ended_ns - run.started_ns) / SECOND,
        _Series("retention_run_exit_code"): run.exit_code,
    }
    for about, outcomes in by_name.items():
        values |= _of_outcomes(about, outcomes, rules.get(about, ()))
    values |= _of_listings(run)
    samples = {about: _of_measures(each) for about, each in streams.items()}
    samples |= {about: _of_table(each) for about, each in tables.items()}
    for about, measured in samples.items():
        values |= {about.series(metric, state=state): value for metric, state, value in measured}
    kept = _kept(before)
    values |= _successes(run, by_name, kept)
    values |= _totals(values, by_name.keys() or {series.about for series in kept}, kept)
    return _exposition(run.command, values)


def _of_listings(run: CommandRun) -> Values:
    """Whether a configuration lists each stream."""
    streams = {_encodable(outcome.stream) for outcome in run.outcomes}
    unlisted, unreported = (set(map(_encodable, names)) for names in (run.unlisted, run.unreported))
    listed = (streams | unlisted) - unreported
    return {_Series(_UNLISTED, stream): stream in unlisted for stream in sorted(listed)}


def _of_outcomes(about: _About, outcomes: Sequence[Outcome[Any]], rules: Sequence[str]) -> Values:
    code = next((outcome.exit_code for outcome in outcomes if outcome.exit_code), 0)
    values: Values = {
        about.series("duration_seconds"): sum(each.seconds for each in outcomes),
        about.series("exit_code"): code,
    }
    for report in (outcome.value for outcome in outcomes if outcome.value is not None):
        for name, value, rule in _of_report(report.as_json(), rules):
            values[about.series(name, rule)] = value
    return values


def _of_report(entry: Mapping[str, Any], rules: Sequence[str]) -> Iterator[tuple[str, float, str]]:
    """The samples of a report: a metric, its value, and its rule, if it is of one."""
    if "by_rule" in entry:
        yield "left", int("left" in entry), ""
        yield "removed_bytes", entry["removed_bytes"], ""
        removed = "removed_rows" if "table" in entry else "removed_messages"
        for rule, number in (dict.fromkeys(rules, 0) | entry["by_rule"]).items():
            yield removed, number, rule
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


def _of_measures(measures: Measures) -> Iterator[tuple[str, str, float]]:
    """The samples of a stream's measures: a metric, its state, if it is of one, and its value."""
    if measures.lag_seconds is not None:
        yield "lag_seconds", "", measures.lag_seconds
    yield "paused", "", measures.is_paused
    yield "holds", "", measures.holds
    yield "unfinished_erasures", "", measures.unfinished_erasures
    yield "messages", "", measures.messages
    yield "bytes", "", measures.bytes
    yield "small_files", "", measures.small_files
    yield "dead_bytes", "due", measures.due_bytes
    yield "dead_bytes", "waiting", measures.waiting_bytes
    yield "oldest_dead_age_seconds", "", measures.oldest_dead_seconds
    yield from _of_verification(measures.verified)


def _of_table(measures: TableMeasures) -> Iterator[tuple[str, str, float]]:
    """The samples of a table's measures, as `_of_measures`."""
    if measures.lag_seconds is not None:
        yield "lag_seconds", "", measures.lag_seconds
    yield "paused", "", measures.is_paused
    yield "holds", "", measures.holds
    yield "unfinished_erasures", "", measures.unfinished_erasures
    for name in ("rows", "bytes", "files"):
        yield name, "", getattr(measures, name)
    yield from _of_verification(measures.verified)


def _of_verification(verified: LastVerification | None) -> Iterator[tuple[str, str, float]]:
    """The samples of a last verification; without one there are none, so that its age is unknown, not long."""
    if verified is not None:
        yield "verified_timestamp_seconds", "", verified.ended_ns / SECOND
        yield "verify_findings", "damaged", verified.damages
        yield "verify_findings", "unverified", verified.unverified


def _successes(
    run: CommandRun, by_name: Mapping[_About, Sequence[Outcome[Any]]], kept: Values
) -> Values:
    """The last success of each stream and table: this run, an earlier one, or 0.

    If a run failed as a whole, all are kept.
    """
    return {
        about.series(_SUCCESS): run.ended_ns / SECOND
        if about in by_name and all(map(_is_done, by_name[about]))
        else kept.get(about.series(_SUCCESS), 0)
        for about in by_name or dict.fromkeys(series.about for series in kept)
    }


def _totals(values: Values, named: Set[_About], kept: Values) -> Values:
    """Each counter of some streams and tables: its value in the file so far, and this run's increment."""
    totals = {
        series: value
        for series, value in kept.items()
        if not series.metric.endswith(_SUCCESS) and series.about in named
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
                    kind: Literal["stream", "table"] = "table" if "table" in labels else "stream"
                    about, metric = _About(kind, labels[kind]), sample.name.split("_", 2)[2]
                    values[about.series(metric, labels.get("rule", ""))] = sample.value
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
