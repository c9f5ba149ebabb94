"""Every operation on a local disk fails in every possible way; repeating the command gives the normal result."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.crew import WORKERS, Crew
from tests.support.faults import Call, Fault, Kind, kinds_of
from tests.support.unlucky import ACTS, claims, print_tally

ALL = os.environ.get("RETENTION_FAULTS") == "all"
"""Whether each operation fails for each kind of path, at its first and last call: `make long NAME=faults`."""
DECIDING = ("link", "rename", "replace")
"""Operations with a durable effect; these fail for each kind of path."""
QUICK = ("publish", "first-publish", "import", "apply")
"""The commands that cover every way to write."""
WITH_A_RIVAL = "race"
"""Commands with a rival's commit between the old and the new state."""
TELLING = ("mirror", "sync", "sync-topic")
"""Commands with several commits, which say after a failure what came before it."""
IN_COMMITS = (*TELLING, WITH_A_RIVAL, "ingest", "publish", "purge", "publish-topic", "begin-anew")
"""Commands with several commits, which may end after any of them."""
UNKNOWABLE = (("iggy", Kind.STALE), ("source", Kind.STALE))
"""An import or an ingest cannot detect files missing from a listing of a foreign directory."""
TRIES = 10
FORMATS = ("delta", "parquet")
TALLY: Counter[tuple[str, str, str]] = Counter()
"""The count of each failure of an operation, by result."""
TRIED: set[tuple[str, str, str, Kind]] = set()


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    hired = Crew("tests.support.unlucky", tmp_path_factory.mktemp("faults"))
    yield hired
    hired.stop()
    if ALL:
        print_tally(TALLY)


@cache
def trial_of(crew: Crew, name: str, format_: str) -> Trial:
    """The same trial for every test."""
    return Trial(crew, name, format_)


class Trial:
    """One command on one format: its initial state, and copies of it with a failure."""

    def __init__(self, crew: Crew, name: str, format_: str) -> None:
        self.crew, self.name, self.format = crew, name, format_
        self.base = crew.folder / f"{name}-{format_}"
        assert crew.run(do="prepare", scenario=name, folder=self.base, format=format_) == 0
        calm = self.copy("calm")
        told = self.ask(calm, "act", plan=[])
        assert told["error"] is None, told
        self.answer = told["answer"]
        self.calls = [Call(*call) for call in told["calls"]]
        self.old = self.ask(self.copy("old"), "held")["held"]
        self.expected = self.ask(calm, "outcome")
        self.new = self.expected.pop("held")
        assert self.expected["orphans"] == []

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.base, f"{self.base}+{name}", symlinks=True))

    def ask(self, folder: Path, do: str, **case: Any) -> Any:
        result = Path(f"{folder}.json")
        case = {"scenario": self.name, "folder": folder, "result": result, **case}
        assert self.crew.run(do=do, **case) == 0, f"{folder.name}: {do} fails"
        return json.loads(result.read_text())

    def faults(self) -> Iterator[tuple[Call, Kind]]:
        """Operations with every possible failure: the first call of each kind, and with `ALL` also the last."""
        if ALL:
            ends = ((call, kind) for call in self._ends() for kind in kinds_of(call.operation))
            yield from (end for end in ends if (end[0].place, end[1]) not in UNKNOWABLE)
            return
        for call in self.calls:
            for kind in kinds_of(call.operation):
                place = call.place if call.operation in DECIDING else ""
                known = (self.format, call.operation, place, kind)
                if known not in TRIED:
                    TRIED.add(known)
                    yield call, kind

    def _ends(self) -> list[Call]:
        """The first and the last call of each operation for each kind of path; in a race (variable) only the first."""
        counted = [] if self.name == WITH_A_RIVAL else self.calls
        last = {(call.operation, call.place): call for call in counted}
        first = {(call.operation, call.place): call for call in reversed(self.calls)}
        return list(dict.fromkeys([*first.values(), *last.values()]))

    def wrongs(self, fault: tuple[Call, Kind]) -> list[str]:
        call, kind = fault
        name = f"{call.operation}#{call.nth}-{kind}".replace(" ", "-")
        try:
            folder, told = self._met(name, Fault(call.operation, call.nth, kind))
            found = list(self._wrong(folder, told, kind))
        except AssertionError as error:
            return [f"{name} ({call.place}): {str(error).splitlines()[0]}"]
        TALLY[call.operation, kind, told["error"] or "done"] += 1
        shutil.rmtree(folder)
        return [f"{name} ({call.place}): {wrong}: {told['sentence']}" for wrong in found]

    def _met(self, name: str, fault: Fault) -> tuple[Path, dict[str, Any]]:
        """Whether the command reached the failing call, and the result.

        The number of searches depends on random file names, so a run may have fewer calls.
        """
        for _ in range(TRIES):
            folder = self.copy(name)
            told: dict[str, Any] = self.ask(folder, "act", plan=[[*vars(fault).values()]])
            if told["met"]:
                return folder, told
            shutil.rmtree(folder)
        raise AssertionError(f"was not met in {TRIES} runs")

    def _wrong(self, folder: Path, told: dict[str, Any], kind: Kind) -> Iterator[str]:
        if not told["ours"]:
            yield f"ends with {told['error']}"
        found = self.ask(folder, "again")
        held = found.pop("held")
        if told["error"] is None and held != self.new:
            yield f"ends as if done and holds {held[0]} messages"
        if held not in (self.old, self.new) and self.name not in IN_COMMITS:
            yield f"holds {held[0]} messages, neither the old nor the new"
        if self.name not in IN_COMMITS and claims(told["sentence"]) and held != self.old:
            yield "claims that nothing happened"
        yield from self._untold(held, told)
        if told["error"] is None and kind is not Kind.STALE and told["answer"] != self.answer:
            yield f"answers {told['answer']}"
        for key, wanted in self.expected.items():
            if key != "orphans" and found[key] != wanted:
                yield f"{key} is {found[key]} after a second try, not {wanted}"

    def _untold(self, held: Any, told: dict[str, Any]) -> Iterator[str]:
        """A mirror or a sync that stops between two commits says so, unless the outcome is unknown.

        So does an ingest that says that nothing was changed.
        """
        has_to_tell = self.name in TELLING or (self.name == "ingest" and claims(told["sentence"]))
        is_between = has_to_tell and held not in (self.old, self.new)
        is_told = (
            " before, and are kept" in told["sentence"] or told["error"] == "CommitUnknownError"
        )
        if is_between and not is_told:
            yield "does not say what came"


@pytest.mark.thorough
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", ACTS if ALL else QUICK)
def test_what_fails_once_changes_nothing_in_the_end(
    crew: Crew, name: str, format_: str, record_testsuite_property: Any
) -> None:
    trial = trial_of(crew, name, format_)
    faults = list(trial.faults())
    print(f"{name} on {format_}: {len(faults)} faults", flush=True)
    with ThreadPoolExecutor(WORKERS) as pool:
        wrongs = [wrong for found in pool.map(trial.wrongs, faults) for wrong in found]
    record_testsuite_property(f"faults-{name}-{format_}", len(faults))
    assert not wrongs, "\n".join(wrongs)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_slow_disk_changes_nothing_at_all(crew: Crew, format_: str) -> None:
    trial = trial_of(crew, "apply", format_)
    slow = trial.copy("slow")
    assert trial.ask(slow, "act", plan=[], slow_s=0.005)["error"] is None
    found = trial.ask(slow, "outcome")
    assert found.pop("held") == trial.new
    assert found == trial.expected
