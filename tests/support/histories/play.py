"""Running of histories: from a seed to acts, and from a failure to a minimal failing history."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest

from retention.storage import parallel
from tests.support.histories.actors import Actors
from tests.support.histories.acts import ACTS, WEIGHTS
from tests.support.histories.terms import random_terms
from tests.support.histories.whole_check import check_whole

EVERY = 50
"""Acts between two full checks; a final check follows the last act."""
ENOUGH = 5
"""The number of failures that stops the run."""


@dataclass(frozen=True)
class History:
    """A seed, and the subset of its acts to play."""

    seed: int
    kept: tuple[int, ...]

    @classmethod
    def of(cls, seed: int) -> History:
        """The full history of a seed; one in a hundred has a thousand acts."""
        rng = Random(f"length {seed}")
        length = 1000 if rng.random() < 0.01 else rng.randint(30, 100)
        return cls(seed, tuple(range(length)))

    @classmethod
    def parsed(cls, text: str) -> History:
        """The history of a text from `str`: a seed, or a seed and the numbers of acts."""
        seed, _, numbers = text.partition(":")
        if not numbers:
            return cls.of(int(seed))
        return cls(int(seed), tuple(map(int, numbers.split(","))))

    def __str__(self) -> str:
        if self.kept == History.of(self.seed).kept:
            return str(self.seed)
        return f"{self.seed}:{','.join(map(str, self.kept))}"


@dataclass(frozen=True)
class Failure:
    """An act after which warehouse and model differ."""

    history: History
    at: int
    """The index of the failed act among the played ones; after the last: the final check."""
    lines: tuple[str, ...]
    error: str

    def report(self) -> str:
        """The events, and the command to reproduce them."""
        return "\n".join([*self.lines, self.error, f"RETENTION_HISTORY={self.history}"])


def play(history: History, folder: Path) -> Failure | None:
    """Play a history in a new directory; returns its failure, or None."""
    rng = Random(history.seed)
    terms = random_terms(rng)
    kinds = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=max(history.kept) + 1)
    lines = [f"seed {history.seed}: {terms}"]
    played = 0
    folder.mkdir()
    try:
        actors = Actors(folder, terms)
        with actors.clock.rules_the_storage(), one_after_another():
            for number in history.kept:
                actors.said = kinds[number]
                try:
                    ACTS[kinds[number]](actors, Random(f"{history.seed}/{number}"))
                finally:
                    lines.append(f"{number:4} {actors.said}")
                if number % EVERY == EVERY - 1:
                    lines.append("     whole check")
                    check_whole(actors)
                played += 1
            lines.append("     last check")
            check_whole(actors, ends=True)
    except (Exception, pytest.fail.Exception):  # any error is reported with the preceding acts
        return Failure(history, played, tuple(lines), traceback.format_exc())
    finally:
        shutil.rmtree(folder)
    return None


@contextmanager
def one_after_another() -> Iterator[None]:
    """Run without threads: streams are small, and the hand-over takes longer than the work."""
    before = pa.cpu_count(), pa.io_thread_count()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        with patch.object(parallel, "ThreadPoolExecutor", _InTurn):
            yield
    finally:
        pa.set_cpu_count(before[0])
        pa.set_io_thread_count(before[1])


class _InTurn(AbstractContextManager["_InTurn"]):
    """The interface of a pool for `in_threads`, without threads."""

    map = map

    def __init__(self, threads: int) -> None:
        del threads

    def __exit__(self, *_: object) -> None:
        """Wait for nothing."""


def shrunk(failure: Failure, tries: int = 60) -> Failure:
    """Shrink a failure by leaving out some acts at a time."""
    best = failure
    kept = list(failure.history.kept[: failure.at + 1])
    size = max(1, len(kept) // 2)
    while size and tries:
        start = 0
        while start < len(kept) and tries:
            fewer = kept[:start] + kept[start + size :]
            tries -= 1
            found = _again(History(failure.history.seed, tuple(fewer))) if fewer else None
            if found is not None and _kind(found) == _kind(failure):
                best, kept = found, fewer
            else:
                start += size
        size //= 2
    return best


def _again(history: History) -> Failure | None:
    with tempfile.TemporaryDirectory() as folder:
        return play(history, Path(folder, "history"))


def _kind(failure: Failure) -> str:
    """The code location that detected a failure."""
    places = [line for line in failure.error.splitlines() if line.startswith("  File ")]
    return places[-1] if places else ""


def play_all(first: int, acts: int, folder: Path) -> tuple[int, list[Failure]]:
    """Play the histories of consecutive seeds up to a number of acts; returns the number of acts, and the failures."""
    played, failures = 0, list[Failure]()
    for seed in count(first):
        if played >= acts or len(failures) == ENOUGH:
            break
        history = History.of(seed)
        failure = play(history, folder / f"history-{seed}")
        played += len(history.kept)
        print(f"seed {seed}: {len(history.kept)} acts, {played:,} in all", flush=True)
        if failure is not None:
            print(failure.report(), flush=True)
            failures.append(shrunk(failure))
            print(failures[-1].report(), flush=True)
    return played, failures
