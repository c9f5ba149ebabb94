"""A worker of a consumer is killed after every durable step: another worker completes the work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention.storage.crash_points import CRASH_AT, STEPS_LOG, Step
from tests.support.consumer_model import needs
from tests.support.consuming import ACK_WAIT, noted, opened_at, prepare
from tests.support.crew import Crew
from tests.support.laying import START

KILLED = -9
MESSAGES = 6
ALL = set(range(1, MESSAGES + 1))


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.consuming", tmp_path_factory.mktemp("consumers"))
    yield hired
    hired.stop()


def worked(crew: Crew, folder: Path, diary: str, now_ns: int, **environment: str) -> int:
    case = {"folder": folder, "diary": diary, "now_ns": now_ns, "batch": 4}
    return crew.run(**case, environment=environment)


def given(folder: Path, diary: str) -> list[int]:
    return [seq for line in noted(folder / diary) for seq in line.get("given", [])]


@pytest.mark.thorough
def test_nothing_is_lost_wherever_a_worker_is_killed(crew: Crew) -> None:
    calm = crew.folder / "calm"
    prepare(calm, 2, 3)
    log = calm / "steps"
    assert worked(crew, calm, "first", START, **{STEPS_LOG: str(log)}) == 0
    assert given(calm, "first") == sorted(ALL)
    counts = Counter(log.read_text().splitlines())
    assert {Step.ENTRY_SYNCED, Step.CONSUMER_WRITTEN, Step.CONSUMER_TIDIED} <= counts.keys()
    places = [f"{step}#{n + 1}" for step, count in counts.items() for n in range(count)]
    lost = {place: wrong for place in places if (wrong := wrong_after(crew, place))}
    assert lost == {}
    print(f"killed at {len(places)} steps: {json.dumps(counts)}")


def wrong_after(crew: Crew, place: str) -> str:
    """The violations after a kill of a worker at a step and a takeover after the ack wait."""
    folder = crew.folder / place.replace("#", "-")
    prepare(folder, 2, 3)
    if worked(crew, folder, "first", START, **{CRASH_AT: place}) != KILLED:
        return "it was not killed"
    seen = set(given(folder, "first"))
    state = opened_at(folder, START).consumer("billing").state
    settled = ALL - needs("explicit", state, tuple(sorted(ALL)))
    if not settled <= seen:
        return f"{settled - seen} were settled, and nobody was given them"
    if worked(crew, folder, "second", START + ACK_WAIT) != 0:
        return "the second one failed"
    again = set(given(folder, "second"))
    if again != ALL - settled:
        return f"{ALL - settled} were not settled, and {again} were given to the second one"
    opened_at(folder, START + ACK_WAIT).plan().apply()
    left = opened_at(folder, START + ACK_WAIT).state().messages
    return f"{left} messages are left" if left else ""
