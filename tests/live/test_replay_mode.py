"""Passes with `mode: replay` beside a real server that received the same publishes in real time."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from retention.api.stream import Stream
from retention.core.units import SECOND
from retention.rules.replay.fates import held_at
from tests.support.nats_oracle import server
from tests.support.replay_oracle import (
    BUSY_S,
    GAP_S,
    Look,
    Trial,
    random_trial,
    raw_stream,
    replays_of,
    run_trials,
)
from tests.support.sandboxes import opened

pytestmark = pytest.mark.live

TRIALS = int(os.environ.get("RETENTION_REPLAYS", "2"))
"""The streams that must have enough looks that no delay of the server could have changed."""
AT_ONCE = min(12, 4 * TRIALS)
MOST_ROUNDS = 10 + TRIALS // 5
"""A busy machine needs several."""
FEWEST_LOOKS = 3


def test_passes_leave_what_the_server_held(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("RETENTION_SEED", "20261129")))
    judged, clear = list[str](), 0
    with server() as nats:
        for number in range(MOST_ROUNDS):
            trials = [random_trial(chance, f"M{number}_{trial}") for trial in range(AT_ONCE)]
            for trial in trials:
                trial.config["subject_delete_marker_ttl"] = 0
            asyncio.run(run_trials(nats.url, trials, spread_s=GAP_S / AT_ONCE))
            looks = [looks_of(tmp_path, trial) for trial in trials]
            judged += [each for of_trial in looks for each in of_trial]
            clear += sum(len(of_trial) >= FEWEST_LOOKS for of_trial in looks)
            if clear >= TRIALS:
                break
    print(
        f"{clear} streams with {FEWEST_LOOKS} or more clear looks, {len(judged)} looks after passes"
    )
    assert [text for text in judged if text] == []
    assert clear >= TRIALS


def looks_of(folder: Path, trial: Trial) -> list[str]:
    """What differs at each look that no delay of the server can have changed: nothing, or a sentence.

    Before each look the publishes since the last one are appended, some of them one look late, and a pass is applied.
    """
    if trial.late_s > BUSY_S:
        return []
    stream, raw = (
        stream_of(folder, trial),
        raw_stream(trial).select(["subject", "ts_ns", "headers", "payload"]),
    )
    numbers = [answer.get("seq", 0) for *_, answer in trial.sent]
    replays, done, found = replays_of(trial), 0, []
    for number, look in enumerate(sorted(trial.looks, key=lambda look: look.before_ns)):
        upto = sum(sent_ns <= look.before_ns for sent_ns, *_ in trial.sent)
        late = number % 3 == 1
        upto = max(done, upto - late)
        if upto > done:
            stream.append(raw.slice(done, upto - done))
            done = upto
        stream.plan(look.before_ns).apply()
        left = tuple(numbers[seq - 1] for seq in seqs_of(stream))
        if not late and is_clear(trial, look, replays):
            found.append("" if left == look.seqs else f"{look} {left} {trial.config}")
    return found


def stream_of(folder: Path, trial: Trial) -> Stream:
    now_ns = trial.looks[-1].after_ns + 3600 * SECOND
    name = trial.name
    config = {"name": name, "subjects": [f"{name}.>"], "mode": "replay"}
    return opened(folder / name, config | in_words(trial), now_ns=now_ns).stream(name)


def in_words(trial: Trial) -> dict[str, object]:
    durations = ("max_age", "duplicate_window", "subject_delete_marker_ttl")
    return {
        key: f"{value}ns" if key in durations and value else value
        for key, value in trial.config.items()
    }


def is_clear(trial: Trial, look: Look, replays: list[object]) -> bool:
    """Whether the server holds the same at both ends of a look, however late it is."""
    contents = {
        tuple(held_at(fates, at_ns)["server_seq"].to_pylist())
        for fates in replays
        for at_ns in (look.before_ns, look.after_ns)
    }
    return len(contents) == 1


def seqs_of(stream: Stream) -> list[int]:
    return [seq for table in stream.messages() for seq in table["seq"].to_pylist()]
