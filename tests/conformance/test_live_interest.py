"""Consumers at work on a real server, and a pass over its backups: equal removals, except for the server's defects."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from retention.api.warehouse import Warehouse
from retention.formats.nats.backup import read_backup, write_backup
from retention.ingest.import_nats import import_nats_backup
from tests.support import nats_oracle
from tests.support.cases import warehouse_with
from tests.support.deviations import DEVIATIONS, differences, named
from tests.support.interest_cases import left_in
from tests.support.judged_stream import SECOND, JudgedStream, Step
from tests.support.nats_oracle import Nats
from tests.support.random_consumers import RandomConsumers

pytestmark = [pytest.mark.live, pytest.mark.slow]

STREAMS = int(os.environ.get("RETENTION_LIVE_CONSUMERS", "10"))
NOW_NS = 1_900_000_000 * SECOND


def bring_in(warehouse: Warehouse, step: Step, folder: Path) -> None:
    """Import the messages from before a step, with the consumers at the time of the server's decision."""
    path = step.before
    if step.states != step.before:
        messages, path = read_backup(step.before), folder / f"{step.stream}.backup"
        consumers = read_backup(step.states).consumers
        write_backup(path, messages.state, consumers, messages.batches())
    import_nats_backup(warehouse.stream(step.stream).opened, path)


def passed(folder: Path, steps: Sequence[Step], format_: str, archives: str) -> dict[str, set[int]]:
    """The messages kept by a pass in several streams, imported from the archives around or after a step of each."""
    names = ("name", "subjects", "retention", "storage")
    streams = [{name: step.config[name] for name in names} for step in steps]
    warehouse = warehouse_with(folder, streams, format_, "local", NOW_NS)
    for step in steps:
        if archives == "after":
            import_nats_backup(warehouse.stream(step.stream).opened, step.after)
        else:
            bring_in(warehouse, step, folder)
    outcomes = warehouse.apply()
    assert [outcome.sentence for outcome in outcomes if outcome.error] == []
    return {step.stream: set(left_in(warehouse, step.stream)) for step in steps}


def judged(folder: Path, live: Callable[[Nats], Sequence[JudgedStream]]) -> list[Step]:
    """The steps of streams on a server that is restarted at the end."""
    with nats_oracle.server(store=folder / "store") as nats:
        streams = live(nats)
        last = [stream.backup() for stream in streams]
    with nats_oracle.server(store=folder / "store") as again:
        for stream, before in zip(streams, last, strict=True):
            stream.restarted(again, before)
    return [step for stream in streams for step in stream.steps]


@pytest.mark.thorough
def test_what_consumers_settle_on_a_running_server_goes_here_too(tmp_path: Path) -> None:
    def live(nats: Nats) -> list[JudgedStream]:
        streams = []
        for number in range(STREAMS):
            retention = ("interest", "workqueue", "limits")[number % 3]
            streams.append(JudgedStream(nats, f"LIFE-{number}", retention, tmp_path))
            RandomConsumers(streams[-1], random.Random(number)).live()
        return streams

    steps = judged(tmp_path, live)
    met: dict[str, set[tuple[str, int]]] = {}
    removed: Counter[tuple[str, str]] = Counter()
    for number in range(max(step.number for step in steps) + 1):
        at_once = [step for step in steps if step.number == number]
        format_ = ("delta", "parquet")[number % 2]
        left = passed(tmp_path / f"around-{number}", at_once, format_, "around")
        for step in at_once:
            for one in differences(step, left[step.stream]):
                met.setdefault(named(one), set()).add((step.stream, one.seq))
            before = read_backup(step.before).state["messages"]
            removed[step.config["retention"], step.what] += before - len(left[step.stream])
        later = [step for step in at_once if step.states == step.after]
        left_later = passed(tmp_path / f"after-{number}", later, format_, "after")
        for step in later:
            assert left_later[step.stream] == left[step.stream] & set(step.held)
    counts = {name: len(messages) for name, messages in sorted(met.items())}
    print(f"{len(steps)} steps; removed: {dict(removed)}; deviations: {counts}")
    assert [name for name in met if name not in DEVIATIONS] == []
    for met_often in (("interest", "worked"), ("workqueue", "worked"), ("interest", "switched")):
        assert removed[met_often] > STREAMS // 2


def no_consumer_is_left(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"])
    stream.publish("aa")
    stream.step("dropped", lambda: stream.drop("c"))


def unmatched_after_an_edit(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"])
    stream.publish("aa")
    stream.step("edited", lambda: stream.consumer("c", ["b"]))


def unmatched_and_settled(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"])
    stream.publish("aa")
    [first] = stream.take("c", 1)
    stream.consumer("c", ["b"])
    stream.step("worked", lambda: stream.answer([first]))


def unmatched_below_every_floor(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"])
    stream.publish("ba")
    stream.answer(stream.take("c", 1))
    stream.switch()
    stream.step("restored", stream.restore)


def give_up(stream: JudgedStream, replies: Sequence[str]) -> None:
    """Request redelivery of messages of `c` that allow only one delivery."""
    stream.answer(replies, b"-NAK")
    stream.take("c", 1)


def given_up_below_every_floor(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"], max_deliver=1)
    stream.publish("aa")
    replies = stream.take("c", 2)
    give_up(stream, replies[:1])
    stream.answer(replies[1:])
    stream.step("restored", stream.restore)


def given_up_just_at_the_floor(stream: JudgedStream) -> None:
    stream.consumer("other", ["b"])
    stream.consumer("c", ["a"], max_deliver=1)
    stream.publish("baaa")
    replies = stream.take("c", 3)
    give_up(stream, replies[1:2])
    stream.answer(replies[:1])


def passed_over(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"])
    stream.publish("ab")
    stream.answer(stream.take("c", 2))
    stream.switch()
    stream.step("edited", lambda: stream.consumer("c", ["a", "b"]))


def settled_above_the_floor(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"], max_deliver=1)
    stream.publish("aaa")
    replies = stream.take("c", 3)
    stream.answer(replies[1:])
    give_up(stream, replies[:1])
    stream.step("switched", stream.switch)


def given_up_by_one_who_is_dropped(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"], max_deliver=1)
    stream.consumer("other", ["a"])
    stream.publish("aa")
    stream.answer(stream.take("other", 2))
    replies = stream.take("c", 2)
    give_up(stream, replies[:1])
    stream.answer(replies[1:])
    stream.step("dropped", lambda: stream.drop("c"))


def settled_without_acks(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"], ack_policy="none")
    stream.publish("aa")
    stream.switch()
    stream.step("worked", lambda: stream.take("c", 1))


def passed_by(stream: JudgedStream) -> None:
    stream.consumer("c", ["a"])
    stream.publish("ba")
    stream.answer(stream.take("c", 1))
    stream.step("edited", lambda: stream.consumer("c", ["b"]))


SHOWN = (
    ("interest", no_consumer_is_left, [1, 2]),
    ("interest", unmatched_after_an_edit, [1, 2]),
    ("workqueue", unmatched_and_settled, [1]),
    ("limits", unmatched_below_every_floor, [1]),
    ("interest", given_up_below_every_floor, [1]),
    ("interest", given_up_just_at_the_floor, [3]),
    ("limits", passed_over, [2]),
    ("limits", settled_above_the_floor, [2, 3]),
    ("interest", given_up_by_one_who_is_dropped, [1]),
    ("limits", settled_without_acks, [1]),
    ("workqueue", passed_by, [1]),
)
"""A way to provoke each deviation, in order, and the resulting different messages."""


def test_each_deviation_is_met(tmp_path: Path) -> None:
    def live(nats: Nats) -> list[JudgedStream]:
        streams = []
        for retention, lead_there, _ in SHOWN:
            streams.append(JudgedStream(nats, lead_there.__name__.upper(), retention, tmp_path))
            lead_there(streams[-1])
        return streams

    first = [step for step in judged(tmp_path, live) if step.number == 0]
    left = passed(tmp_path / "around", first, "delta", "around")
    for step, deviation, (_, _, seqs) in zip(first, DEVIATIONS, SHOWN, strict=True):
        found = differences(step, left[step.stream])
        assert [(named(one), one.seq) for one in found] == [(deviation, seq) for seq in seqs]
