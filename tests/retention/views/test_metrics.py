"""The metrics of runs: valid Prometheus text format, with each number under its name."""

from __future__ import annotations

import re
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from retention.core.outcomes import Outcome
from retention.core.units import SECOND
from retention.errors import BusyError
from retention.history.compaction_report import CompactionReport
from retention.history.report import RunReport
from retention.inspect.measures import Measures
from retention.stores.sidecar.last_verification import LastVerification
from retention.views.metrics import HELP, CommandRun, metrics_text

RULE = 'command="retain",rule="{}",stream="ORDERS"'
NOW = 1_800_000_000 * SECOND
REPORT = replace(
    RunReport.of_nothing("ORDERS", NOW),
    removed_messages=5,
    removed_bytes=500,
    by_rule={"max_age": 3, "max_msgs": 2},
    held={"action": "hold", "messages": 7},
)


def run(*outcomes: Outcome[object], code: int = 0, ended_ns: int = NOW) -> CommandRun:
    return CommandRun("retain", ended_ns - 3 * SECOND // 2, ended_ns, code, outcomes)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Metric and labels → value; asserts that the text is well formed."""
    values: dict[tuple[str, str], float] = {}
    families = list(text_string_to_metric_families(text))
    assert len(families) == len({(family.name, family.type) for family in families})
    for family in families:
        assert family.documentation, "the samples of a metric stand together"
        for sample in family.samples:
            assert family.type == ("counter" if sample.name.endswith("_total") else "gauge")
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            key = (sample.name.removeprefix("retention_"), labels)
            assert key not in values, "a series is there once"
            values[key] = sample.value
    return values


def test_a_run_says_what_it_did_with_each_stream() -> None:
    measured = {
        "ORDERS": Measures(
            *(3600.5, 4, 10, 20, 30, 900, 60.0, ("max_age", "msg_ttl")),
            is_paused=True,
            holds=2,
            unfinished_erasures=1,
            verified=LastVerification(NOW, NOW + SECOND, 7, "damaged", 9, 9, None, 2, 3),
        )
    }
    done = replace(run(Outcome("ORDERS", REPORT, seconds=0.5)), measures=measured)
    stream = 'command="retain",stream="ORDERS"'
    assert samples(metrics_text(done)) == {
        ("run_end_timestamp_seconds", 'command="retain"'): 1_800_000_000,
        ("run_duration_seconds", 'command="retain"'): 1.5,
        ("run_exit_code", 'command="retain"'): 0,
        ("stream_last_success_timestamp_seconds", stream): 1_800_000_000,
        ("stream_duration_seconds", stream): 0.5,
        ("stream_exit_code", stream): 0,
        ("stream_left", stream): 0,
        ("stream_unlisted", stream): 0,
        ("stream_removed_messages", RULE.format("max_age")): 3,
        ("stream_removed_messages", RULE.format("max_msgs")): 2,
        ("stream_removed_messages", RULE.format("msg_ttl")): 0,
        ("stream_removed_messages_total", RULE.format("max_age")): 3,
        ("stream_removed_messages_total", RULE.format("max_msgs")): 2,
        ("stream_removed_messages_total", RULE.format("msg_ttl")): 0,
        ("stream_removed_bytes", stream): 500,
        ("stream_removed_bytes_total", stream): 500,
        ("stream_messages", stream): 30,
        ("stream_bytes", stream): 900,
        ("stream_oldest_dead_age_seconds", stream): 60,
        ("stream_held_messages", stream): 7,
        ("stream_lag_seconds", stream): 3600.5,
        ("stream_paused", stream): 1,
        ("stream_unfinished_erasures", stream): 1,
        ("stream_verified_timestamp_seconds", stream): NOW / SECOND + 1,
        ("stream_verify_findings", 'command="retain",state="damaged",stream="ORDERS"'): 2,
        ("stream_verify_findings", 'command="retain",state="unverified",stream="ORDERS"'): 3,
        ("stream_holds", stream): 2,
        ("stream_small_files", stream): 4,
        ("stream_dead_bytes", 'command="retain",state="due",stream="ORDERS"'): 10,
        ("stream_dead_bytes", 'command="retain",state="waiting",stream="ORDERS"'): 20,
    }


def test_the_last_success_outlives_failures_and_streams_left_undone() -> None:
    key = ("stream_last_success_timestamp_seconds", 'command="retain",stream="ORDERS"')
    first = metrics_text(run(Outcome("ORDERS", REPORT)))
    later = NOW + 9 * SECOND
    failed = metrics_text(
        run(Outcome("ORDERS", error=BusyError("busy")), code=75, ended_ns=later), first
    )
    assert samples(failed)[key] == NOW / SECOND
    assert samples(failed)["stream_exit_code", key[1]] == 75
    nothing = metrics_text(run(code=2, ended_ns=later), failed)
    assert samples(nothing)[key] == NOW / SECOND
    left = replace(REPORT, left={"budget": "--max-time"})
    undone = metrics_text(run(Outcome("ORDERS", left), ended_ns=later), nothing)
    assert samples(undone)[key] == NOW / SECOND
    assert samples(undone)["stream_left", key[1]] == 1
    again = metrics_text(run(Outcome("ORDERS", REPORT), ended_ns=later), undone)
    assert samples(again)[key] == later / SECOND
    assert key not in samples(metrics_text(run(Outcome("OTHER", REPORT)), again))


def test_counters_go_on_from_run_to_run() -> None:
    text = metrics_text(run(Outcome("ORDERS", REPORT), Outcome("OTHER", REPORT)))
    text = metrics_text(run(Outcome("ORDERS", REPORT)), text)
    text = metrics_text(run(Outcome("ORDERS", error=BusyError("busy")), code=75), text)
    text = metrics_text(run(code=2), text)
    labels = 'command="retain",stream="ORDERS"'
    counters = {key: value for key, value in samples(text).items() if "_total" in key[0]}
    assert counters == {
        ("stream_removed_messages_total", RULE.format("max_age")): 6,
        ("stream_removed_messages_total", RULE.format("max_msgs")): 4,
        ("stream_removed_bytes_total", labels): 1000,
    }


def test_counters_of_release_0_1_0_go_on_and_damaged_lines_do_not() -> None:
    name = "retention_stream_removed_messages_total"
    labels = 'command="retain",stream="ORDERS",rule="max_age"'
    damaged = (f"{name}{{{labels}}}", f"{name}{{{labels}", f"{name}{{}} 9", f"{name}{{,", name)
    before = "\n".join((f"# HELP {name} ", f"{name}{{{labels}}} 4", *damaged, ""))
    values = samples(metrics_text(run(Outcome("ORDERS", REPORT)), before))
    assert values["stream_removed_messages_total", RULE.format("max_age")] == 7


def test_one_failure_of_a_stream_is_no_success() -> None:
    compacted: Outcome[object] = Outcome("ORDERS", error=BusyError("busy"))
    values = samples(metrics_text(run(Outcome("ORDERS", REPORT), compacted)))
    labels = 'command="retain",stream="ORDERS"'
    assert values["stream_last_success_timestamp_seconds", labels] == 0
    assert values["stream_exit_code", labels] == 75
    merged = CompactionReport("ORDERS", files_before=9, pending=2)
    both = samples(metrics_text(run(Outcome("ORDERS", REPORT), Outcome("ORDERS", merged))))
    assert both["stream_merged_files", labels] == 9
    assert both["stream_removed_bytes", labels] == 500


def test_names_of_streams_are_escaped_and_read_back() -> None:
    name = 'a"b\\c\nd\\n{} ü,x="y"\udc80'
    first = metrics_text(run(Outcome(name, REPORT)))
    again = metrics_text(run(Outcome(name, error=BusyError("busy"))), first)
    failed_as_a_whole = metrics_text(run(code=2), again)
    for text in (first, again, failed_as_a_whole):
        series = {labels for metric, labels in samples(text) if "last_success" in metric}
        assert len(series) == 1
        assert series == {labels for metric, labels in samples(first) if "left" in metric}


def test_names_and_explanations_keep_to_the_conventions() -> None:
    for name, text in HELP.items():
        assert re.fullmatch(r"retention(_[a-z]+)+", name)
        assert "\n" not in text
        assert "\\" not in text
        assert text.endswith(".")
    seconds = [name for name, text in HELP.items() if "How long" in text or "Unix time" in text]
    assert all(name.endswith("_seconds") for name in seconds)
