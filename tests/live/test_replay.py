"""Replays beside a real server that received the same publishes in real time."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from retention.rules.replay.fates import held_at
from tests.support.nats_oracle import server
from tests.support.replay_oracle import (
    BURSTS,
    GAP_S,
    Judged,
    Trial,
    judge,
    random_trial,
    replays_of,
    run_trials,
)

pytestmark = pytest.mark.live

TRIALS = int(os.environ.get("RETENTION_REPLAYS", "1"))
"""The trials that must have enough looks that no delay of the server could have changed."""
AT_ONCE = min(30, 4 * TRIALS)
MOST_ROUNDS = 10 + TRIALS // 5
"""A busy machine needs several."""
FEWEST_LOOKS = 5


def test_a_replay_holds_what_the_server_held() -> None:
    chance = random.Random(int(os.environ.get("RETENTION_SEED", "20261128")))
    judged, clear = list[Judged](), 0
    with server() as nats:
        for number in range(MOST_ROUNDS):
            trials = [random_trial(chance, f"R{number}_{trial}") for trial in range(AT_ONCE)]
            asyncio.run(run_trials(nats.url, trials, spread_s=GAP_S / AT_ONCE))
            judged += map(judge, trials)
            clear = sum(each.agreed >= FEWEST_LOOKS for each in judged)
            if clear >= TRIALS:
                break
    agreed, answers = sum(each.agreed for each in judged), sum(each.answers for each in judged)
    equal = f"{agreed} looks, {answers} answers equal"
    print(f"{len(judged)} trials, {clear} with {FEWEST_LOOKS} or more clear looks; {equal}")
    assert [text for each in judged for text in each.different] == []
    assert clear >= TRIALS
    assert answers >= 5 * clear


def test_messages_stay_while_their_markers_are_refused() -> None:
    """A marker is longer than `max_msg_size`; a message is the last of its subject if all others wait for markers."""
    config = {"max_age": 10**9, "max_msg_size": 20, "subject_delete_marker_ttl": 60 * 10**9}
    trials = []
    for storage in ("file", "memory"):
        message = (f"{storage}.a", b"", dict[str, str]())
        bursts = [[message] if number in {0, 1, 3} else [] for number in range(BURSTS)]
        trials.append(Trial(storage, {**config, "storage": storage}, bursts))
    with server() as nats:
        asyncio.run(run_trials(nats.url, trials, spread_s=0))
    for trial in trials:
        fates = replays_of(trial)[0]
        for look in (trial.looks[2], trial.looks[-1]):
            assert look.seqs == tuple(held_at(fates, look.before_ns)["server_seq"].to_pylist())
        assert trial.looks[-1].seqs == (2, 3)
