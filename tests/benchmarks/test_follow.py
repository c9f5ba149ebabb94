"""A sync that follows a publisher is sampled, and each message's lag is known."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.follow import Load, Outcome, Sample, follow, report

pytestmark = pytest.mark.live


SECONDS = float(os.environ.get("RETENTION_FOLLOW_SECONDS", "4"))
"""How long a sync is followed; `make long NAME=sync-hour` has 3,600."""
JUDGED_FROM_S = 1_800
"""A shorter run says nothing about growth: it has the beginning in it."""
MOST_GROWTH = 32
"""MiB an hour."""


def test_every_message_has_a_lag_and_the_samples_are_kept(tmp_path: Path) -> None:
    load = Load(SECONDS, every=max(0.5, SECONDS / 360))
    table = tmp_path / "samples.csv"
    outcome = follow(load, tmp_path, table)
    assert outcome.synced["missed"] == 0
    assert len(outcome.lags) == outcome.synced["position"] > 1
    assert (outcome.lags > 0).all()
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(outcome.samples) > 2
    assert all(float(row["rss_mib"]) > 1 for row in rows)
    lines = list(report(load, outcome))
    print(f"{table}:", *lines, sep="\n")
    assert len(lines) == 5
    if SECONDS >= JUDGED_FROM_S:
        assert outcome.slope < MOST_GROWTH


def test_the_slope_is_that_of_the_later_samples() -> None:
    leaps = [0, 500]
    grows = [500 + 2 * number for number in range(10)]
    samples = [
        Sample(number * 36.0, rss, number * 0.5, number * 10, 0, 0)
        for number, rss in enumerate(leaps + grows)
    ]
    outcome = Outcome(samples, np.ones(1), {})
    assert outcome.slope == pytest.approx(200)
    assert outcome.commit_cost(0, 1) == pytest.approx(50)
