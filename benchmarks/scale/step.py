"""What is measured at scale: a step to carry out, and the check of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from retention.engines.select import EngineName


class WrongError(Exception):
    """What came of a step is not what has to come of it."""


@dataclass(frozen=True)
class Step:
    """A step, which is measured in a process of its own, and a look at its outcome, which is not measured."""

    act: Callable[[], Any]
    check: Callable[[Any], dict[str, Any]]
    """The outcome in figures.

    Raises:
        WrongError: it is wrong.
    """


class Work(Protocol):
    """Work of some size, which is made first."""

    def make(self, place: Path) -> None:
        """Write to an empty directory what the steps read."""
        ...

    def steps(self, place: Path, engine: EngineName) -> Mapping[str, Step]:
        """The steps by their names, in their order; each rests on the ones before it."""
        ...


def expect(what: str, actual: object, expected: object) -> None:
    """Compare two values.

    Raises:
        WrongError: they differ.
    """
    if actual != expected:
        raise WrongError(f"{what}: {actual}, and it has to be {expected}")
