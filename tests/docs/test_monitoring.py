"""The page on monitoring, and the dashboard and alerts: each name is in metrics of real runs, each alert fires."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import (
    AggregateExpr,
    Expr,
    Matcher,
    MatchOp,
    MatrixSelector,
    VectorSelector,
    parse,
    walk,
)

from retention.views.metrics import HELP
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, commands, lines

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
FILES = ROOT / "monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((FILES / "alert-rules.yml").read_text("utf-8"))[
    "groups"
][0]["rules"]
TESTS: list[dict[str, Any]] = yaml.safe_load((FILES / "alert-rules.test.yml").read_text("utf-8"))[
    "tests"
]
DASHBOARD: dict[str, Any] = json.loads((FILES / "grafana-dashboard.json").read_text("utf-8"))
SCRAPED = {"instance"}
"""The labels that Prometheus adds."""
VARIABLES = {"command": "retain", "instance": ".*", "stream": ".*", "table": ".*"}
Written = dict[str, list[dict[str, str]]]
"""The labels of each sample of a metric."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The metrics of a night: a stream held for a consumer, another one, a table, and a doctor that failed."""
    folder = tmp_path_factory.mktemp("night")
    held = ORDERS | {"hold_for_consumers": {"consumers": ["billing"], "max_age": "36500d"}}
    other = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}
    command = commands(folder, held, other, engine="local")
    command.json("publish", "ORDERS", stdin="\n".join(lines(9, first_ns=16 * 10**17)))
    command.json("publish", "OTHER", stdin="\n".join(lines(5, "other.a")))
    write_deltalake(folder / "lake", pa.table({"at": pa.array([1, 2], pa.int64())}))
    table = {"name": "events", "location": "lake", "time": "at", "unit": "s", "max_rows": 1}
    config = json.loads((folder / "retention.yaml").read_text())
    (folder / "retention.yaml").write_text(json.dumps(config | {"tables": [table]}))
    command.json("verify")
    for name, *arguments in (
        ("retain", "--engine", "local", "--compact"),
        ("reclaim", "--engine", "local"),
        ("doctor", "--config", "missing.yaml"),
    ):
        done = run_job(name, folder, *arguments, "--metrics-file", f"{name}.prom")
        assert done.returncode == (2 if name == "doctor" else 0), done.stderr
    return labels_of("".join(file.read_text() for file in folder.glob("*.prom")))


def labels_of(text: str) -> Written:
    written: Written = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            written.setdefault(sample.name, []).append(dict(sample.labels))
    return written


def expanded(expression: str) -> str:
    """An expression of the dashboard with values for its variables."""
    return re.sub(r"\$(\w+)", lambda name: VARIABLES[name[1]], expression)


def queries() -> Iterator[tuple[str, str]]:
    """The expressions of both files, each with the text that names labels of its result."""
    for rule in RULES:
        yield rule["expr"], " ".join(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            legend = target.get("legendFormat", "")
            yield expanded(target["expr"]), " ".join(re.findall(r"{{(\w+)}}", legend))
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            [(series, label)] = re.findall(r"^label_values\((.+), (\w+)\)$", query)
            yield expanded(series), label


def parts(expression: str) -> tuple[list[VectorSelector], set[str]]:
    """The series that an expression selects, and the labels by which it aggregates."""
    selectors: list[VectorSelector] = []
    labels: set[str] = set()

    def visit(node: Expr) -> None:
        if isinstance(node, MatrixSelector):
            selectors.append(node.vector_selector)
        elif isinstance(node, VectorSelector):
            selectors.append(node)
        elif isinstance(node, AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)

    walk(parse(expression), visit)
    return selectors, labels


def matches(matcher: Matcher, value: str) -> bool:
    is_pattern = matcher.op in (MatchOp.Re, MatchOp.NotRe)
    pattern = matcher.value if is_pattern else re.escape(matcher.value)
    wanted = matcher.op in (MatchOp.Re, MatchOp.Equal)
    return (re.fullmatch(pattern, value) is not None) == wanted


def selected(selector: VectorSelector, written: Written) -> list[dict[str, str]]:
    """The labels of the samples that a selector matches; it may name labels that they have, and no other."""
    matchers = [each for each in selector.matchers.matchers if each.name not in SCRAPED]
    return [
        labels
        for labels in written.get(selector.name or "", ())
        if all(each.name in labels and matches(each, labels[each.name]) for each in matchers)
    ]


def lost(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """The places of values that Grafana's schema does not take as they are; it may add its defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs.get(key), f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (value, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(value, other, f"{place}[{number}]")
    elif ours != theirs:
        yield place


def test_alerts_and_panels_select_metrics_and_labels_of_real_runs(written: Written) -> None:
    assert written.keys() <= HELP.keys()
    for expression, named in queries():
        selectors, labels = parts(expression)
        assert selectors, expression
        known = set(SCRAPED)
        for selector in selectors:
            matched = selected(selector, written)
            assert matched, (str(selector), expression)
            known.update(*matched)
        assert known >= labels | set(named.split()), expression


def test_a_selector_of_another_name_label_or_value_selects_nothing(written: Written) -> None:
    for wrong in (
        'retention_lag{command="retain"}',
        'retention_run_exit_code{rule=~".*"}',
        'retention_stream_dead_bytes{state="dead"}',
    ):
        assert not selected(parts(wrong)[0][0], written)


def test_grafanas_schema_knows_every_key_of_the_dashboard() -> None:
    register_default_plugins()
    dashboard = Dashboard.from_json(DASHBOARD)
    assert list(lost(DASHBOARD, json.loads(JSONEncoder().encode(dashboard)))) == []
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_the_page_lists_every_alert_and_each_has_a_test() -> None:
    names = [rule["alert"] for rule in RULES]
    assert re.findall(r"^\| `(Retention\w+)`", PAGE, re.MULTILINE) == names
    tested = {
        entry["alertname"]
        for test in TESTS
        for entry in test.get("alert_rule_test", ())
        if entry.get("exp_alerts")
    }
    assert tested == set(names)


def test_the_tests_of_the_alerts_rest_on_metrics_and_labels_of_real_runs(written: Written) -> None:
    for test in TESTS:
        for entry in test.get("input_series", ()):
            [series], _ = parts(entry["series"])
            labels = {each.name for each in series.matchers.matchers}
            assert labels in [set(each) for each in written.get(series.name or "", ())], entry


@pytest.mark.skipif(which("promtool") is None, reason="promtool is not installed")
def test_the_tests_of_the_alerts_pass() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", "alert-rules.test.yml"],
        cwd=FILES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
