"""Random worlds in which a person's messages got everywhere: an erasure leaves nothing that a stranger can find."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from retention.apply import erasure_run, erasure_survey
from retention.stores.consumer_table import ConsumerTable
from retention.stores.delta import forget_log
from tests.erasure.test_erase import EVE, World, lived_in
from tests.support.erasure_worlds import (
    Act,
    change_data,
    foreign_append,
    random_world,
)

WORLDS = int(os.environ.get("RETENTION_ERASURES", "2"))
"""Random worlds; `make long NAME=erasures` makes 100."""


def others(world: World) -> list[dict[str, Any]]:
    """The messages that stay."""
    rows = [row for table in world.stream.messages() for row in table.to_pylist()]
    return [row for row in rows if row["subject"] != EVE]


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_stranger_finds_nothing_after_an_erasure(tmp_path: Path, seed: int) -> None:
    world, acts = random_world(tmp_path, seed)
    stay = others(world)
    report = world.stream.erase(EVE, reason=f"request of {EVE}").apply()
    assert report.is_done, (acts, report.traces)
    assert world.left() == [], acts
    kept = [(row["seq"], row["payload"]) for row in stay]
    assert [
        (row["seq"], row["payload"])
        for table in world.stream.messages()
        for row in table.to_pylist()
    ] == kept, acts
    assert world.stream.verify().damages == (), acts


def _lived_in(folder: Path) -> World:
    return lived_in(folder, "parquet")


def _hidden(folder: Path) -> World:
    """A live file in which a vector hides a message of the person."""
    world = World(folder, "vectors")
    lines = [{"subject": EVE, "data": "x"}, *[{"subject": "orders.bob", "data": "other"}] * 40]
    world.stream.publish(json.dumps(line).encode() for line in lines)
    world.stream.delete(1).apply()
    return world


def _changed_by(act: Act, folder: Path) -> World:
    """A stream that another writer changed."""
    world = World(folder, "delta")
    world.publish(4)
    act(world, Random(0))
    return world


Lived = Callable[[Path], World]
LEFT_OUT: dict[str, tuple[Lived, Any, str, Any]] = {
    "rows under vectors": (_hidden, erasure_survey, "_hidden", frozenset()),
    "removed files": (_lived_in, erasure_run, "dead_copies", []),
    "change data": (partial(_changed_by, change_data), erasure_run, "dead_copies", []),
    "older log": (partial(_changed_by, foreign_append), forget_log, "forget_log", []),
    "digests": (_lived_in, erasure_run, "orphaned_digests", []),
    "arguments of runs": (_lived_in, erasure_run, "erase_arguments", 0),
    "ended holds": (_lived_in, erasure_run, "conceal_holds", 0),
    "consumers": (_lived_in, ConsumerTable, "forget", None),
}
"""Step → what has to have happened for it to matter, and the function that is left out, with its answer.

A stranger finds each of these, and so does the search of the product, but for `NOT_SURVEYED`. What no search can find,
because it has no text: the digests of message ids (`_forget_ids`; a publish with such an id is answered as a duplicate,
which `test_erase.py` tests), files of deletion vectors (`unused_vectors`), and checksums (`companions_of`).
"""

NOT_SURVEYED = "rows under vectors"
"""The search looks for the strings of the messages that the survey lists, so it misses what the survey misses."""


@pytest.mark.parametrize("step", LEFT_OUT)
def test_a_step_left_out_is_discovered_twice(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, place, name, answer = LEFT_OUT[step]
    world = prepare(tmp_path)
    monkeypatch.setattr(place, name, lambda *_, **__: answer)
    report = world.stream.erase(EVE, reason="request 7").apply()
    by_stranger = {path for path, _ in world.left()}
    assert by_stranger
    assert report.is_done == (step == NOT_SURVEYED)
    if report.is_done:
        return
    traced = {Path(trace.location).relative_to(tmp_path).as_posix() for trace in report.traces}
    assert traced & by_stranger
    monkeypatch.undo()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []
