"""A stream no longer in the configuration is named by every command on all streams, and by jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retention.cli.examples import EXAMPLES
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, Commands, commands, lines

NAMED = "PII is in the warehouse, and"
OTHER = {"name": "PII_EU", "subjects": ["pii.>"], "max_age": "7d"}


def fallen(folder: Path, unlisted: str) -> Commands:
    """PII was renamed in the configuration, but not in the warehouse."""
    command = commands(folder, ORDERS, {**OTHER, "name": "PII"}, engine="local")
    assert command.run("publish", "PII", stdin="\n".join(lines(3, "pii.a"))).exit_code == 0
    file = folder / "retention.yaml"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "streams": [ORDERS, OTHER], "unlisted": unlisted}))
    return command


@pytest.mark.parametrize(("unlisted", "code"), [("keep", 0), ("warn", 0), ("fail", 4)])
def test_every_look_at_all_streams_names_it(tmp_path: Path, unlisted: str, code: int) -> None:
    command = fallen(tmp_path, unlisted)
    for words in (
        ("validate",),
        ("state",),
        ("state", "--max-lag", "1d"),
        ("plan",),
        ("apply", "--yes"),
        ("reclaim", "--yes"),
    ):
        done = command.run(*words)
        assert done.exit_code == code, words
        assert code in EXAMPLES[words[0]][1], words
        assert (NAMED in done.stderr) is (unlisted != "keep"), words
        assert "did you mean PII_EU?" in done.stderr or unlisted == "keep"
    assert command.run("plan", "ORDERS").exit_code == 0
    doctor = command.run("doctor", "PII")
    assert doctor.exit_code == code
    assert ("configuration: PII is in the warehouse" in doctor.stdout) is (unlisted != "keep")


def test_the_state_does_not_call_it_up_to_date(tmp_path: Path) -> None:
    command = fallen(tmp_path, "warn")
    [_, orders, _, pii] = command.run("state").stdout.splitlines()
    assert orders.rstrip().endswith("up to date")
    assert pii.rstrip().endswith("not listed: nothing is removed")
    assert command.json("state", "PII")[0]["unlisted"] is True


def test_jobs_name_it_and_a_metric_has_it(tmp_path: Path) -> None:
    fallen(tmp_path, "fail")
    done = run_job("retain", tmp_path, "--engine", "local", "--metrics-file", "retain.prom")
    assert done.returncode == 4
    assert done.stderr.startswith(f"retain: {NAMED}")
    assert "retain: 3 streams done, 0 failed" in done.stdout
    samples = (tmp_path / "retain.prom").read_text(encoding="utf-8").splitlines()
    assert 'retention_stream_unlisted{command="retain",stream="PII"} 1.0' in samples
    assert 'retention_stream_unlisted{command="retain",stream="ORDERS"} 0.0' in samples
    assert 'retention_run_exit_code{command="retain"} 4.0' in samples
    assert not [line for line in samples if "lag" in line and '"PII"' in line]
    for name in ("plan", "reclaim"):
        assert run_job(name, tmp_path, "--metrics-file", f"{name}.prom").returncode == 4, name
    assert (
        'retention_stream_messages{command="plan",stream="ORDERS"}'
        in (tmp_path / "plan.prom").read_text()
    )
    reclaimed = run_job("reclaim", tmp_path, "--unlisted", "--metrics-file", "unlisted.prom")
    named = 'retention_stream_unlisted{command="reclaim",stream="PII"} 1.0'
    assert named in (tmp_path / "unlisted.prom").read_text(encoding="utf-8")
    assert (reclaimed.returncode, reclaimed.stdout[:21]) == (0, "reclaim: 1 stream don")


def test_a_configuration_that_keeps_it_has_no_metric_of_its_listing(tmp_path: Path) -> None:
    fallen(tmp_path, "keep")
    assert run_job("reclaim", tmp_path, "--unlisted", "--metrics-file", "r.prom").returncode == 0
    samples = (tmp_path / "r.prom").read_text(encoding="utf-8")
    assert 'stream_exit_code{command="reclaim",stream="PII"}' in samples
    assert "retention_stream_unlisted{" not in samples


def test_a_pass_of_another_configuration_leaves_the_lag_unchanged(tmp_path: Path) -> None:
    counted = {"name": "COUNTED", "subjects": ["counted.>"], "max_msgs": 1}
    command = commands(tmp_path, ORDERS, counted, engine="local")
    for stream, subject in (("ORDERS", "orders.a"), ("COUNTED", "counted.a")):
        sent = "\n".join(lines(3, subject, first_ns=1_600_000_000 * 10**9))
        assert command.run("publish", stream, stdin=sent).exit_code == 0
    before = [entry["lag"] for entry in command.json("state")]
    assert all(lag["since_ns"] for lag in before)
    theirs = {"warehouse": ".", "streams": [{"name": "THEIRS", "subjects": ["theirs.>"]}]}
    file = tmp_path / "theirs.yaml"
    file.write_text(json.dumps(theirs), encoding="utf-8")
    applied = command.run("--config", file, "apply", "--yes")
    assert (applied.exit_code, "ORDERS" in applied.output) == (0, False)
    assert [entry["lag"] for entry in command.json("state")] == before


def test_what_it_holds_goes_by_name(tmp_path: Path) -> None:
    command = fallen(tmp_path, "fail")
    assert command.run("drop", "PII", "--yes").exit_code == 0
    assert command.run("validate").exit_code == 0
    assert [entry["stream"] for entry in command.json("reclaim", "--unlisted")["streams"]] == [
        "PII"
    ]
    refused = command.run("reclaim", "--unlisted", "ORDERS")
    assert refused.exit_code == 2
    assert "ORDERS: a configuration lists this stream" in refused.stderr
