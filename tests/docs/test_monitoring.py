"""The page on monitoring: its table has every metric, and each of its alert rules fires in a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from retention.views.metrics import HELP
from tests.support.pages import blocks

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
RULES, TESTS = blocks(PAGE, "yaml")


def rules() -> list[dict[str, str]]:
    """The alert rules of the page."""
    listed: list[dict[str, str]] = yaml.safe_load(RULES)["groups"][0]["rules"]
    return listed


def simulated() -> dict[str, Any]:
    """The series and expected alerts of the tests for promtool."""
    [listed] = yaml.safe_load(TESTS)["tests"]
    return dict(listed)


def test_the_table_has_every_metric_in_the_order_of_the_file() -> None:
    cells = re.findall(r"^\| (`(?:retention_|…)[^|]*) \|", PAGE, re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert [name.replace("…", "retention_stream") for name in names] == list(HELP)


def test_every_alert_rule_rests_on_metrics_that_runs_write() -> None:
    for rule in rules():
        names = re.findall(r"\bretention_\w+", rule["expr"])
        assert names, rule
        assert HELP.keys() >= set(names), rule
    series = [entry["series"].partition("{")[0] for entry in simulated()["input_series"]]
    assert HELP.keys() >= set(series)


def test_every_alert_rule_has_a_test() -> None:
    tested = {entry["alertname"] for entry in simulated()["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(which("promtool") is None, reason="promtool is not installed")
def test_the_tests_of_the_alert_rules_pass(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES, encoding="utf-8")
    (tmp_path / "tests.yml").write_text(TESTS, encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
