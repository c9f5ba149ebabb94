"""Replays beside a real server that received the same publishes in real time."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.support.nats_oracle import server
from tests.support.replay_oracle import judge, random_trial, run_trials

pytestmark = pytest.mark.live

TRIALS = int(os.environ.get("RETENTION_REPLAYS", "8"))
AT_ONCE = 30
FEWEST_LOOKS = 5


def test_a_replay_holds_what_the_server_held() -> None:
    chance = random.Random(20261128)
    trials = [random_trial(chance, f"R{number}") for number in range(TRIALS)]
    with server() as nats:
        for first in range(0, TRIALS, AT_ONCE):
            group = trials[first : first + AT_ONCE]
            asyncio.run(run_trials(nats.url, group, spread_s=0.7 / AT_ONCE))
    judged = [judge(trial) for trial in trials]
    different = [text for each in judged for text in each.different]
    agreed, unclear = sum(each.agreed for each in judged), sum(each.unclear for each in judged)
    answers = sum(each.answers for each in judged)
    clear = sum(each.agreed >= FEWEST_LOOKS for each in judged)
    print(f"{TRIALS} replays, {agreed} looks and {answers} answers equal, {unclear} looks unclear")
    assert different == []
    assert answers > 10 * TRIALS
    assert clear >= TRIALS * 2 // 3
