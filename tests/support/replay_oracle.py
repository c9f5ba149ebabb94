"""Random publishes to streams of a real server in real time, what it answers, and its content at instants between."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import nats
import pyarrow as pa

from retention.config.stream import StreamConfig
from retention.core import headers
from retention.core.message_rows import complete_rows
from retention.core.units import MILLISECOND, SECOND, parse_as_of
from retention.replay.limits import replay_limits
from retention.replay.publishes import publishes_of
from retention.rules.replay.fates import held_at
from retention.rules.replay.publishes import Publishes
from retention.rules.replay.replay import replay
from retention.schemas.deadlines import NEVER

Json = dict[str, Any]

BURSTS, GAP_S = 6, 0.7
"""Publishes come in bursts, so that expiry and its delay fall between them."""
LOOKS_S = (0.2, 0.32, 0.62)
"""The times after a burst at which the content is asked for."""
LATE_NS = tuple(late * MILLISECOND for late in (0, 60, 130, 200, 260, 330, 420))
"""Delays of a server's age scan: a timer of 250 ms, a clock that ticks every 100 ms, and the machine's."""
VERY_LATE_NS = tuple(late * MILLISECOND for late in (800, 1_300, 1_800, 2_300))
"""More of them, where a message with a TTL was stored: it sets the timer, also if an older message is due before."""
TTL_LATE_NS = 120 * MILLISECOND
"""The longest delay of a server's TTL scan on this machine."""
BUSY_S = 0.12
"""The delay of this process after which the machine is busy: a server's delays are longer, too."""


@dataclass(frozen=True)
class Look:
    """The content of a stream as the server told it, at some instant between two."""

    before_ns: int
    after_ns: int
    seqs: tuple[int, ...]
    bytes: int
    last_seq: int


@dataclass
class Trial:
    """One stream: its configuration, its publishes, the server's answers, and looks at its content."""

    name: str
    config: Json
    bursts: list[list[tuple[str, bytes, dict[str, str]]]]
    sent: list[tuple[int, str, bytes, dict[str, str], Json]] = field(default_factory=list)
    """Instant, subject, payload, headers and answer of each publish."""
    looks: list[Look] = field(default_factory=list)
    stored_ns: dict[int, int] = field(default_factory=dict)
    """Sequence → the server's time of each message that it stored."""
    late_s: float = 0.0
    """The longest delay of this process at any step."""

    async def wait_until(self, at: float) -> None:
        """Wait for an instant of the monotonic clock, and measure the delay."""
        await asyncio.sleep(at - time.monotonic())
        self.late_s = max(self.late_s, time.monotonic() - at)


def random_trial(chance: random.Random, name: str) -> Trial:
    """A configuration and publishes that meet its limits."""

    def some(*values: Any) -> Any:
        return chance.choice(values)

    per_subject, refuses = some(-1, -1, 1, 2), chance.random() < 0.3
    ages = some(0, 0, 350, 1050, 1750)
    has_ttls = chance.random() < 0.5
    config: Json = {
        "storage": some("file", "memory"),
        "max_msgs": some(-1, -1, 2, 4, 7),
        "max_bytes": some(-1, -1, 250, 500),
        "max_msgs_per_subject": per_subject,
        "max_age": ages * MILLISECOND,
        "discard": "new" if refuses else "old",
        "discard_new_per_subject": refuses and per_subject > 0 and chance.random() < 0.5,
        "max_msg_size": some(-1, -1, -1, 90),
        "allow_msg_ttl": has_ttls,
        "subject_delete_marker_ttl": some(0, 1, 60) * 10**9 if has_ttls else 0,
        "allow_rollup_hdrs": chance.random() < 0.5,
        "duplicate_window": some(0, 350) * MILLISECOND,
    }
    bursts = [
        [random_message(chance, name) for _ in range(chance.randrange(1, 5))] for _ in range(BURSTS)
    ]
    return Trial(name, config, bursts)


def random_message(chance: random.Random, name: str) -> tuple[str, bytes, dict[str, str]]:
    """Subject, payload and headers of a publish."""
    number = str(chance.randrange(9))
    possible = {
        "Nats-TTL": (0.25, chance.choice(["1", "1", "2", "never", "soon"])),
        "Nats-Rollup": (0.12, chance.choice(["sub", "sub", "ALL", "some"])),
        "Nats-Msg-Id": (0.3, f"id{chance.randrange(4)}"),
        "KV-Operation": (0.05, "PURGE"),
        "Nats-Expected-Last-Sequence": (0.03, number),
        "Nats-Expected-Last-Subject-Sequence": (0.05, number),
        "Nats-Expected-Last-Subject-Sequence-Subject": (0.05, f"{name}.{chance.choice('a*')}"),
        "Nats-Expected-Last-Msg-Id": (0.03, f"id{chance.randrange(4)}"),
        "Nats-Expected-Stream": (0.03, name),
    }
    chosen = {key: value for key, (share, value) in possible.items() if chance.random() < share}
    payload = b"z" * chance.choice([0, 5, 20, 60])
    return f"{name}.{chance.choice('aabc')}", payload, chosen


async def run_trials(url: str, trials: Sequence[Trial], spread_s: float) -> None:
    """Run trials side by side on one server, each begun a little after the one before."""
    client = await nats.connect(url, allow_reconnect=False)
    told = await client.subscribe("told.>", pending_msgs_limit=-1, pending_bytes_limit=-1)
    await asyncio.gather(
        *(_run(client, trial, number * spread_s) for number, trial in enumerate(trials))
    )
    await client.flush()
    by_name = {trial.name: trial for trial in trials}
    while told.pending_msgs:
        message = await told.next_msg()
        stamps = message.headers or {}
        trial = by_name[stamps["Nats-Stream"]]
        trial.stored_ns[int(stamps["Nats-Sequence"])] = parse_as_of(stamps["Nats-Time-Stamp"], 0)
    await client.close()


async def _run(client: Any, trial: Trial, wait_s: float) -> None:
    await asyncio.sleep(wait_s)
    name = trial.name
    request = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 1, **trial.config}
    request["republish"] = {"src": ">", "dest": "told.>"}
    made = await _ask(client, f"$JS.API.STREAM.CREATE.{name}", request)
    assert "error" not in made, (trial.config, made)
    began = time.monotonic()
    looks = [
        asyncio.create_task(_look_at(client, trial, began + number * GAP_S + after_s))
        for number in range(BURSTS)
        for after_s in LOOKS_S
    ]
    for number, burst in enumerate(trial.bursts):
        await trial.wait_until(began + number * GAP_S)
        for subject, payload, given in burst:
            reply = await client.request(subject, payload, timeout=30, headers=given or None)
            now_ns = time.time_ns()  # noqa: TID251  (the server's clock)
            trial.sent.append((now_ns, subject, payload, given, json.loads(reply.data)))
    await asyncio.gather(*looks)
    await _ask(client, f"$JS.API.STREAM.DELETE.{name}", {})


async def _look_at(client: Any, trial: Trial, at: float) -> None:
    await trial.wait_until(at)
    before_ns = time.time_ns()  # noqa: TID251
    info = await _ask(client, f"$JS.API.STREAM.INFO.{trial.name}", {"deleted_details": True})
    after_ns = time.time_ns()  # noqa: TID251
    trial.late_s = max(trial.late_s, (after_ns - before_ns) / SECOND)
    state = info["state"]
    gone = set(state.get("deleted") or ())
    seqs = range(state["first_seq"], state["last_seq"] + 1) if state["messages"] else range(0)
    held = tuple(seq for seq in seqs if seq not in gone)
    trial.looks.append(Look(before_ns, after_ns, held, state["bytes"], state["last_seq"]))


async def _ask(client: Any, subject: str, body: Mapping[str, Any]) -> Json:
    reply = await client.request(subject, json.dumps(body).encode(), timeout=30)
    answer: Json = json.loads(reply.data)
    return answer


def config_of(trial: Trial) -> StreamConfig:
    """The configuration of a trial as ours."""
    return StreamConfig(name=trial.name, subjects=(f"{trial.name}.>",), **trial.config)


def raw_stream(trial: Trial) -> pa.Table:
    """The publishes as a stream that never removed or refused any, at the server's times."""
    instants = [
        trial.stored_ns.get(0 if answer.get("duplicate") else answer.get("seq", 0), sent_ns)
        for sent_ns, _, _, _, answer in trial.sent
    ]
    for number in range(len(instants) - 2, -1, -1):
        instants[number] = min(instants[number], instants[number + 1])
    blocks = [headers.build(given.items()) or None for _, _, _, given, _ in trial.sent]
    raw = pa.table(
        {
            "seq": pa.array(range(1, len(instants) + 1), pa.int64()),
            "subject": pa.array([subject for _, subject, _, _, _ in trial.sent]),
            "ts_ns": pa.array(instants, pa.int64()),
            "headers": pa.array(blocks, pa.binary()),
            "payload": pa.array([payload for _, _, payload, _, _ in trial.sent], pa.binary()),
        }
    )
    return complete_rows(raw, "file")


@dataclass(frozen=True)
class Judged:
    """A trial's looks and answers that a server's delays cannot have changed, beside those of a replay."""

    agreed: int
    answers: int
    """Answers to publishes that are equal: their sequences, duplicates and codes."""
    unclear: int
    """Looks at an instant at which a server may be late, or after a delay that changed an answer."""
    different: tuple[str, ...]


def judge(trial: Trial) -> Judged:
    """Compare a server with the replay of the same publishes, wherever no delay of the server matters."""
    if trial.late_s > BUSY_S:
        return Judged(0, 0, len(trial.looks), ())
    replays = replays_of(trial)
    clear_until_ns = _first_refused_marker(trial, replays[0])
    agreed, unclear, answers, different = 0, 0, 0, []
    for look in trial.looks:
        instants = (look.before_ns, look.after_ns)
        contents = {_content(fates, at_ns) for fates in replays for at_ns in instants}
        if len(contents) > 1 or look.after_ns >= clear_until_ns:
            unclear += 1
        elif contents == {(look.seqs, look.bytes, look.last_seq)}:
            agreed += 1
        else:
            different.append(f"{trial.name}: {look}, replay {contents}, {trial.config}")
    for (sent_ns, *_, answer), *ours in zip(trial.sent, *map(_answers, replays), strict=True):
        if len(set(ours)) > 1 or sent_ns >= clear_until_ns:
            continue
        theirs = _their_answer(answer)
        answers += ours[0] == theirs
        if ours[0] != theirs:
            different.append(f"{trial.name}: server {theirs}, replay {ours[0]}, {trial.config}")
    return Judged(agreed, answers, unclear, tuple(different))


def replays_of(trial: Trial) -> list[pa.Table]:
    """The fates of a trial's publishes, first exactly, then with the delays of a server."""
    config = config_of(trial)
    publishes = publishes_of(raw_stream(trial), "file", config)
    limits = replay_limits(config)
    delays = LATE_NS + (VERY_LATE_NS if limits.expires else ())
    until_ns = trial.looks[-1].after_ns
    ages = limits.max_age_ns
    replays = []
    for late_ns in delays:
        ttl_late_ns = min(late_ns, TTL_LATE_NS)
        later = replace(
            limits,
            max_age_ns=ages and ages + late_ns,
            marker_ttl_ns=limits.marker_ttl_ns and limits.marker_ttl_ns + ttl_late_ns,
            duplicate_window_ns=limits.duplicate_window_ns and limits.duplicate_window_ns + late_ns,
        )
        replays.append(replay(_with_later_deadlines(publishes, ttl_late_ns), later, until_ns))
    return replays


def _first_refused_marker(trial: Trial, fates: pa.Table) -> int:
    """The first instant at which a marker was refused: the server's next tries are at the mercy of its timer."""
    config = config_of(trial)
    if not config.subject_delete_marker_ttl:
        return NEVER
    ages = config.max_age or NEVER
    rows = publishes_of(raw_stream(trial), "file", config).rows.to_pylist()
    deadlines = {row["seq"]: row["deadline_ns"] for row in rows}
    stayed = [NEVER]
    for fate in fates.to_pylist():
        deadline = deadlines.get(fate["seq"])
        if fate["stored_ns"] is None or deadline == NEVER:
            continue
        due_ns = min(fate["ts_ns"] + ages, NEVER if deadline is None else deadline)
        if due_ns < (fate["removed_ns"] or NEVER):
            stayed.append(due_ns)
    return min(stayed)


def _their_answer(answer: Json) -> tuple[str, int]:
    if "error" in answer:
        return "refused", answer["error"]["err_code"]
    return "duplicate" if answer.get("duplicate") else "stored", answer["seq"]


def _answers(fates: pa.Table) -> list[tuple[str, int]]:
    """The answer to each publish, in their order."""
    publishes = fates.filter(fates["seq"].is_valid()).sort_by("seq").to_pylist()
    return [
        (row["fate"], row["code"] or row["by_server_seq"])
        if row["fate"] in {"refused", "duplicate"}
        else ("stored", row["server_seq"])
        for row in publishes
    ]


def _content(fates: pa.Table, at_ns: int) -> tuple[tuple[int, ...], int, int]:
    held = held_at(fates, at_ns)
    stored = [
        seq
        for seq, stored_ns in zip(
            fates["server_seq"].to_pylist(), fates["stored_ns"].to_pylist(), strict=True
        )
        if seq is not None and stored_ns <= at_ns
    ]
    return (
        tuple(held["server_seq"].to_pylist()),
        sum(held["size"].to_pylist()),
        max(stored, default=0),
    )


def _with_later_deadlines(publishes: Publishes, late_ns: int) -> Publishes:
    rows = publishes.rows
    later = [
        deadline if deadline in (None, NEVER) else deadline + late_ns
        for deadline in rows["deadline_ns"].to_pylist()
    ]
    place = rows.schema.get_field_index("deadline_ns")
    column = pa.array(later, pa.int64())
    return replace(publishes, rows=rows.set_column(place, rows.schema.field(place), column))
